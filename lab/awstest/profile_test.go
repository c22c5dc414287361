package awstest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// profiles are the names of all instance profiles that clusters of this name have made, or the user under a path like
// theirs.
func (w *world) profiles() []string {
	out := awsimtest.OK(
		iam.NewFromConfig(
			w.Config,
		).ListInstanceProfiles(
			context.Background(),
			&iam.ListInstanceProfilesInput{PathPrefix: awssdk.String("/karpenter/")},
		),
	)(
		w.t,
	)
	var names []string
	for _, p := range out.InstanceProfiles {
		names = append(names, *p.InstanceProfileName)
	}
	slices.Sort(names)
	return names
}

// iamCalls counts calls of IAM since the last time.
func (w *world) iamCalls() func() int {
	seen := 0
	return func() int {
		all := 0
		for _, c := range w.Sim.Calls() {
			if c.Service == "iam" {
				all++
			}
		}
		defer func() { seen = all }()
		return all - seen
	}
}

// collected lets a controller look through the profiles, every half hour for so long.
func (w *world) collected(c *cloud, d time.Duration, use cloudprovider.ProfileUse) (gone []string, errs error) {
	ask := func(context.Context) (cloudprovider.ProfileUse, error) { return use, nil }
	for passed := time.Duration(0); ; passed += 30 * time.Minute {
		names, err := c.CollectInstanceProfiles(context.Background(), ask)
		gone, errs = append(gone, names...), errors.Join(errs, err)
		if passed >= d {
			return gone, errs
		}
		w.Clock.Advance(30 * time.Minute)
	}
}

func names(all ...string) cloudprovider.ProfileUse {
	use := cloudprovider.ProfileUse{Names: map[string]bool{}}
	for _, n := range all {
		use.Names[n] = true
	}
	return use
}

func TestRoleOfANodeClassChanges(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	before := class.Status.InstanceProfile
	t.Run("a role with a path is the role of its name, however long ago that was looked at", func(t *testing.T) {
		class.Spec.Role = "path/to/" + awsim.NodeRole(clusterName)
		for range 3 {
			w.Clock.Advance(20 * time.Minute)
			resolve(t, c, class)
		}
		if class.Status.InstanceProfile != before || len(w.profiles()) != 1 {
			t.Errorf("%s, then %s of %v", before, class.Status.InstanceProfile, w.profiles())
		}
	})
	class.Spec.Role = awsim.ControllerRole(clusterName)
	resolve(t, c, class)
	after := class.Status.InstanceProfile
	t.Run("a new profile is made, and the one before is kept for an hour", func(t *testing.T) {
		if after == before || !slices.Equal(w.profiles(), sorted(before, after)) {
			t.Fatalf("%s, then %s of %v", before, after, w.profiles())
		}
		if gone, err := w.collected(c, 30*time.Minute, names(after)); err != nil || len(gone) > 0 {
			t.Errorf("gone %v, %v", gone, err)
		}
		t.Run("and as long as an instance uses it", func(t *testing.T) {
			if gone, err := w.collected(c, 5*time.Hour, names(before, after)); err != nil || len(gone) > 0 {
				t.Errorf("gone %v, %v", gone, err)
			}
		})
		t.Run("then it goes", func(t *testing.T) {
			if gone, err := w.collected(c, time.Hour, names(after)); err != nil || !slices.Equal(gone, []string{before}) ||
				!slices.Equal(w.profiles(), []string{after}) {
				t.Errorf("gone %v, left %v, %v", gone, w.profiles(), err)
			}
		})
	})
	t.Run("what was made before the status could be written is found again, by any process", func(t *testing.T) {
		lost := nodeClass("other")
		resolve(t, c, lost)
		made := lost.Status.InstanceProfile
		for _, again := range []*cloud{c, w.start(w.config("uid-1"))} {
			lost := nodeClass("other")
			resolve(t, again, lost)
			if lost.Status.InstanceProfile != made || w.called("CreateInstanceProfile") != 3 {
				t.Errorf("%s, then %s; %d were made", made, lost.Status.InstanceProfile, w.called("CreateInstanceProfile"))
			}
		}
	})
}

func sorted(all ...string) []string { return slices.Sorted(slices.Values(all)) }

func TestRoleIsMissing(t *testing.T) {
	t.Run("the profile is removed, and IAM not called for a minute", func(t *testing.T) {
		w := newWorld(t)
		c := w.start(w.config("uid-1"))
		calls := w.iamCalls()
		class := nodeClass("default")
		class.Spec.Role = "no-such-role"
		missing := func() {
			t.Helper()
			r := c.ResolveNodeClass(t.Context(), class)
			if got := conditionOf(r, awsv1.ConditionInstanceProfileReady); got.Status != metav1.ConditionFalse || got.Reason != "RoleNotFound" ||
				r.Status.InstanceProfile != "" {
				t.Errorf("%+v, profile %q", got, r.Status.InstanceProfile)
			}
		}
		missing()
		if len(w.profiles()) > 0 || calls() == 0 {
			t.Errorf("left %v", w.profiles())
		}
		w.Clock.Advance(59 * time.Second)
		missing()
		if n := calls(); n > 0 {
			t.Errorf("%d calls of IAM", n)
		}
		w.Clock.Advance(time.Second)
		missing()
		if calls() == 0 {
			t.Error("there is no second call to IAM")
		}
	})
}

func TestNodeClassWithoutProfilesOfOurs(t *testing.T) {
	create := func(w *world, name, path string, tags ...iamtypes.Tag) {
		awsimtest.OK(
			iam.NewFromConfig(
				w.Config,
			).CreateInstanceProfile(
				context.Background(),
				&iam.CreateInstanceProfileInput{InstanceProfileName: &name, Path: &path, Tags: tags},
			),
		)(
			w.t,
		)
	}
	t.Run("the user's profile stays when the class goes", func(t *testing.T) {
		w := newWorld(t)
		create(w, "mine", "/")
		c := w.start(w.config("uid-1"))
		class := nodeClass("default")
		class.Spec.Role, class.Spec.InstanceProfile = "", "mine"
		class.Status.InstanceProfile = "mine"
		if err := c.DeleteNodeClassResources(t.Context(), class); err != nil {
			t.Error(err)
		}
		if n := w.called("DeleteInstanceProfile") + w.called("RemoveRoleFromInstanceProfile"); n > 0 {
			t.Errorf("%d calls that delete", n)
		}
	})
	t.Run("a launch template that cannot be deleted keeps the class, and the next attempt lets it go", func(t *testing.T) {
		w := newWorld(t)
		c := w.start(w.config("uid-1"))
		class := nodeClass("default")
		resolve(t, c, class)
		if _, err := c.Launch(t.Context(), claim("general-1", onDemand), class); err != nil {
			t.Fatal(err)
		}
		w.Sim.Inject(
			awsim.Fault{Service: "ec2", Action: "DeleteLaunchTemplate", Error: protocol.Errorf("UnauthorizedOperation", "no").WithStatus(403)},
		)
		if err := c.DeleteNodeClassResources(t.Context(), class); err == nil {
			t.Error("no error")
		}
		if err := c.DeleteNodeClassResources(t.Context(), class); err != nil {
			t.Error(err)
		}
	})
	t.Run("an isolated VPC makes no call to IAM", func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config("uid-1")
		cfg.IsolatedVPC = true
		c := w.start(cfg)
		calls := w.iamCalls()
		if err := c.DeleteNodeClassResources(t.Context(), nodeClass("default")); err != nil {
			t.Error(err)
		}
		if gone, err := w.collected(c, 3*time.Hour, names()); err != nil || len(gone) > 0 {
			t.Errorf("%v, %v", gone, err)
		}
		if n := calls(); n > 0 {
			t.Errorf("%d calls of IAM", n)
		}
	})
	t.Run("profiles are never sought by a name made of the cluster's", func(t *testing.T) {
		w := newWorld(t)
		c := w.start(w.config("uid-1"))
		if err := c.DeleteNodeClassResources(t.Context(), nodeClass("default")); err != nil {
			t.Error(err)
		}
		if n := w.called("GetInstanceProfile"); n > 0 {
			t.Errorf("%d profiles were read by name", n)
		}
	})
}

func TestCollectInstanceProfiles(t *testing.T) {
	const path = "/karpenter/us-east-1/" + clusterName + "/"
	tag := func(key, value string) iamtypes.Tag {
		return iamtypes.Tag{Key: awssdk.String(key), Value: awssdk.String(value)}
	}
	ours, green := tag("dovetail.sh/cluster-uid", "uid-1"), tag("dovetail.sh/cluster-uid", "uid-2")
	named := tag("eks:eks-cluster-name", clusterName)
	w := newWorld(t)
	admin := iam.NewFromConfig(w.Config)
	for name, p := range map[string]struct {
		path string
		tags []iamtypes.Tag
	}{
		"ours":              {path + "uid-of-gone/", []iamtypes.Tag{named, ours}},
		"ours-with-role":    {path + "uid-of-default/", []iamtypes.Tag{named, ours}},
		"ours-in-use":       {path + "uid-of-default/", []iamtypes.Tag{named, ours}},
		"ours-unsure":       {path + "uid-of-busy/", []iamtypes.Tag{named, ours}},
		"of-a-class-here":   {path + "uid-of-default/", []iamtypes.Tag{named}},
		"of-no-class-here":  {path + "uid-of-unknown/", []iamtypes.Tag{named}},
		"another-cluster's": {path + "uid-of-default/", []iamtypes.Tag{named, green}},
		"another-name":      {"/karpenter/us-east-1/" + clusterName + "-2/uid/", []iamtypes.Tag{ours}},
		"user's":            {"/", []iamtypes.Tag{ours}},
	} {
		name = strings.ReplaceAll(name, "'", "")
		awsimtest.OK(
			admin.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name, Path: &p.path, Tags: p.tags}),
		)(
			t,
		)
	}
	awsimtest.OK(admin.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: awssdk.String("ours-with-role"), RoleName: awssdk.String(awsim.NodeRole(clusterName)),
	}))(t)
	use := names("ours-in-use")
	use.Classes = map[string]bool{"uid-of-default": true, "uid-of-busy": true}
	use.Unsure = map[string]bool{"uid-of-busy": true}
	c := w.start(w.config("uid-1"))
	w.Sim.Inject(
		awsim.Fault{Service: "iam", Action: "DeleteInstanceProfile", Error: protocol.Errorf("ServiceFailure", "bad minute").WithStatus(500)},
	)
	gone, err := w.collected(c, time.Hour, use)
	want := []string{"of-a-class-here", "ours", "ours-with-role"}
	if len(gone) != 2 || err == nil {
		t.Errorf("one that cannot be deleted keeps others: gone %v, %v", gone, err)
	}
	more, err := w.collected(c, 0, use)
	if gone = sorted(append(gone, more...)...); !slices.Equal(gone, want) || err != nil {
		t.Errorf("gone %v, %v; want %v", gone, err, want)
	}
	if left := w.profiles(); !slices.Equal(
		left,
		sorted("another-clusters", "another-name", "of-no-class-here", "ours-in-use", "ours-unsure"),
	) {
		t.Errorf("left %v", left)
	}
}
