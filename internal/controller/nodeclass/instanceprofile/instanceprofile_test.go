package instanceprofile

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// fakeCloud records the use that it gets.
type fakeCloud struct {
	use cloudprovider.ProfileUse
	err error
}

func (a *fakeCloud) CollectInstanceProfiles(
	ctx context.Context,
	use func(ctx context.Context) (cloudprovider.ProfileUse, error),
) ([]string, error) {
	a.use, a.err = use(ctx)
	return nil, a.err
}

func TestUse(t *testing.T) {
	class := controllertest.Class(func(c *awsv1.EC2NodeClass) { c.UID, c.Status.InstanceProfile = "uid-class", "now" })
	with := func(profile string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) { c.Annotations[awsv1.AnnotationInstanceProfileName] = profile }
	}
	of := func(class string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Name = class }
	}
	set := func(names ...string) map[string]bool {
		out := map[string]bool{}
		for _, n := range names {
			out[n] = true
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		objects []client.Object
		names   map[string]bool
		unsure  map[string]bool
		fails   bool
	}{
		{"a class alone", nil, set("now"), set(), false},
		{"an instance with an older profile", []client.Object{controllertest.Claim("a", controllertest.Launched, with("before"))}, set("now",
			"before"), set(), false},
		{
			"one being deleted",
			[]client.Object{controllertest.Claim("a", controllertest.Launched, with("before"), controllertest.Deleting)},
			set("now", "before"), set(), false,
		},
		{"without a profile's name", []client.Object{controllertest.Claim("a", controllertest.Launched)}, set("now"), set("uid-class"), false},
		{"one that is being launched", []client.Object{controllertest.Claim("a")}, set("now"), set("uid-class"), false},
		{"of a class that does not exist, with a profile's name", []client.Object{controllertest.Claim("a", controllertest.Launched, of("gone"),
			with("before"))}, set("now", "before"), set(), false},
		{"of a class that does not exist, without a profile's name", []client.Object{controllertest.Claim("a", controllertest.Launched,
			of("gone"))}, nil, nil, true},
		{"another provider's", []client.Object{controllertest.Claim("a", with("theirs"),
			func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" })}, set("now"), set(), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := controllertest.New(t, append(tc.objects, class.DeepCopy())...)
			a := &fakeCloud{}
			(&Loop{Live: f.API, Cloud: a, Log: f.Log}).pass(t.Context())
			if (a.err != nil) != tc.fails {
				t.Fatal(a.err)
			}
			if tc.fails {
				return
			}
			want := cloudprovider.ProfileUse{Names: tc.names, Classes: set("uid-class"), Unsure: tc.unsure}
			if diff := cmp.Diff(want, a.use); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
