package awstest

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// value is a tag's value; empty if there is no such tag.
func value(tags []ec2types.Tag, key string) string {
	for _, t := range tags {
		if awssdk.ToString(t.Key) == key {
			return awssdk.ToString(t.Value)
		}
	}
	return ""
}

func TestCreatedResourcesHaveTheClusterUID(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	if _, err := c.Launch(t.Context(), claim("general-1", in("karpenter.sh/capacity-type", "spot")), class); err != nil {
		t.Fatal(err)
	}
	w.advancePastDelays()
	admin := ec2.NewFromConfig(w.Config)
	found := map[string]string{}
	for _, r := range awsimtest.OK(admin.DescribeInstances(t.Context(), nil))(t).Reservations {
		for _, i := range r.Instances {
			found["instance"] = value(i.Tags, "dovetail.sh/cluster-uid")
		}
	}
	for _, v := range awsimtest.OK(admin.DescribeVolumes(t.Context(), nil))(t).Volumes {
		found["volume"] = value(v.Tags, "dovetail.sh/cluster-uid")
	}
	for _, n := range awsimtest.OK(admin.DescribeNetworkInterfaces(t.Context(), nil))(t).NetworkInterfaces {
		found["network interface"] = value(n.TagSet, "dovetail.sh/cluster-uid")
	}
	for _, l := range awsimtest.OK(admin.DescribeLaunchTemplates(t.Context(), nil))(t).LaunchTemplates {
		found["launch template"] = value(l.Tags, "dovetail.sh/cluster-uid")
	}
	profile := awsimtest.OK(
		iam.NewFromConfig(
			w.Config,
		).GetInstanceProfile(
			t.Context(),
			&iam.GetInstanceProfileInput{InstanceProfileName: &class.Status.InstanceProfile},
		),
	)(
		t,
	)
	for _, tag := range profile.InstanceProfile.Tags {
		if awssdk.ToString(tag.Key) == "dovetail.sh/cluster-uid" {
			found["instance profile"] = awssdk.ToString(tag.Value)
		}
	}
	for _, kind := range []string{"instance", "volume", "network interface", "launch template", "instance profile"} {
		if found[kind] != "uid-1" {
			t.Errorf("%s: dovetail.sh/cluster-uid is %q", kind, found[kind])
		}
	}
}

// karpenters launches an instance and takes Dovetail's tags off it: so Karpenter leaves them.
func (w *world) karpenters(c *cloud, class *awsv1.EC2NodeClass) (providerID, id string) {
	w.t.Helper()
	got, err := c.Launch(w.t.Context(), claim("general-1", onDemand), class)
	if err != nil {
		w.t.Fatal(err)
	}
	w.advancePastDelays()
	id = w.runningInstances()[0].ID
	awsimtest.OK(ec2.NewFromConfig(w.Config).DeleteTags(w.t.Context(), &ec2.DeleteTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{
		{Key: awssdk.String("dovetail.sh/cluster-uid")}, {Key: awssdk.String("dovetail.sh/nodeclaim-uid")},
	}}))(w.t)
	w.Clock.Advance(instance.VisibleWithin)
	return got.ProviderID, id
}

// asKnown is the configuration of a cluster with a Node and NodeClaim for every provider ID.
func (w *world) asKnown(uid string) adapter.Config {
	cfg := w.config(uid)
	cfg.Match = func(string) identity.Match {
		return identity.Match{ClaimName: "general-1", ClaimUID: "uid-of-general-1"}
	}
	return cfg
}

func TestInstancesOfKarpenterAreAdopted(t *testing.T) {
	w := newWorld(t)
	class := nodeClass("default")
	before := w.start(w.config("uid-of-nobody"))
	resolve(t, before, class)
	providerID, id := w.karpenters(before, class)
	c := w.start(w.asKnown("uid-1"))
	all, err := c.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Owner != cloudprovider.Adoptable {
		t.Fatalf("listed %+v, %v; want one that is adoptable", all, err)
	}
	if err := c.Adopt(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	adopted, err := c.Get(t.Context(), providerID)
	if err != nil || adopted.Owner != cloudprovider.Ours || adopted.NodeClaimUID != "uid-of-general-1" {
		t.Fatalf("after adoption: %+v, %v", adopted, err)
	}
	other := w.start(w.asKnown("uid-2"))
	if err := other.Terminate(t.Context(), destroytest.Permit(providerID)); !errors.Is(err, identity.ErrNotOurs) {
		t.Errorf("a cluster that knows it, too, ends it after it was adopted: %v", err)
	}
	if err := c.Terminate(t.Context(), destroytest.Permit(providerID)); err != nil {
		t.Errorf("terminate instance %s: %v", id, err)
	}
}

// A node that goes before anybody has looked at its instance: adopted on the way.
func TestAdoptableInstanceIsAdoptedBeforeItsEnd(t *testing.T) {
	w := newWorld(t)
	class := nodeClass("default")
	before := w.start(w.config("uid-of-nobody"))
	resolve(t, before, class)
	providerID, _ := w.karpenters(before, class)
	c := w.start(w.asKnown("uid-1"))
	if err := c.Terminate(t.Context(), destroytest.Permit(providerID)); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, call := range w.Sim.Calls() {
		if call.Action == "CreateTags" || call.Action == "TerminateInstances" {
			order = append(order, call.Action)
		}
	}
	if strings.Join(order, " ") != "CreateTags TerminateInstances" {
		t.Errorf("calls: %v", order)
	}
}

func TestUnknownInstancesAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	class := nodeClass("default")
	before := w.start(w.config("uid-of-nobody"))
	resolve(t, before, class)
	providerID, id := w.karpenters(before, class)
	c := w.start(w.config("uid-1"))
	calls := len(w.Sim.Calls())
	if err := c.Terminate(t.Context(), destroytest.Permit(providerID)); !errors.Is(err, identity.ErrNotOurs) ||
		!strings.Contains(err.Error(), "dovetail adopt "+id) {
		t.Errorf("terminate: %v", err)
	}
	if err := c.Name(t.Context(), providerID, "node-1", "general-1"); !errors.Is(err, identity.ErrNotOurs) {
		t.Errorf("tag: %v", err)
	}
	all, err := c.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Owner != cloudprovider.Unknown {
		t.Fatalf("listed %+v, %v", all, err)
	}
	if err := c.Adopt(t.Context(), all[0]); !errors.Is(err, identity.ErrNotOurs) {
		t.Errorf("adopt: %v", err)
	}
	for _, call := range w.Sim.Calls()[calls:] {
		if !strings.HasPrefix(call.Action, "Describe") {
			t.Errorf("called %s", call.Action)
		}
	}
	// Until a person reports it.
	people := instance.New(instance.Config{EC2: ec2.NewFromConfig(w.Config), Identity: w.config("uid-1").Identity, Now: w.Clock.Now})
	if err := people.Release(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if err := c.Terminate(t.Context(), destroytest.Permit(providerID)); err != nil {
		t.Errorf("terminate what was released: %v", err)
	}
}

func TestTagsOfAJoinedNode(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	got, err := c.Launch(t.Context(), claim("general-1", onDemand), class)
	if err != nil {
		t.Fatal(err)
	}
	w.advancePastDelays()
	for range 2 {
		if err := c.Name(t.Context(), got.ProviderID, "node-1", "general-1"); err != nil {
			t.Fatal(err)
		}
	}
	if tags := w.runningInstances()[0].Tags; tags["Name"] != "node-1" || tags["karpenter.sh/nodeclaim"] != "general-1" ||
		tags["eks:eks-cluster-name"] != clusterName {
		t.Errorf("tags %v", tags)
	}
	if n := w.called("CreateTags"); n != 1 {
		t.Errorf("CreateTags was called %d times", n)
	}
	class.Spec.Tags["Name"] = "the-users"
	class.Generation++
	named, err := c.Launch(t.Context(), claim("general-2", onDemand), class)
	if err != nil {
		t.Fatal(err)
	}
	w.advancePastDelays()
	if err := c.Name(t.Context(), named.ProviderID, "node-2", "general-2"); err != nil {
		t.Fatal(err)
	}
	if name := w.runningInstances()[1].Tags["Name"]; name != "the-users" {
		t.Errorf("the user's Name became %q", name)
	}
}

// Instance profiles that Karpenter has made for a class of this API server go with the class; those of others stay.
func TestProfilesOfKarpenter(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	admin := iam.NewFromConfig(w.Config)
	path := "/karpenter/us-east-1/" + clusterName + "/" + string(class.UID) + "/"
	for name, tags := range map[string][]iamtypes.Tag{
		"blue_karpenters": {{Key: awssdk.String("eks:eks-cluster-name"), Value: awssdk.String(clusterName)}},
		"blue_foreign":    {{Key: awssdk.String("dovetail.sh/cluster-uid"), Value: awssdk.String("uid-2")}},
	} {
		awsimtest.OK(
			admin.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: &name, Path: &path, Tags: tags}),
		)(
			t,
		)
	}
	if err := c.DeleteNodeClassResources(t.Context(), class); !errors.Is(err, identity.ErrNotOurs) ||
		!strings.Contains(err.Error(), "blue_foreign") {
		t.Errorf("a profile of another cluster under the class's path: %v", err)
	}
	left := awsimtest.OK(admin.ListInstanceProfiles(t.Context(), &iam.ListInstanceProfilesInput{PathPrefix: &path}))(t).InstanceProfiles
	if len(left) != 1 || awssdk.ToString(left[0].InstanceProfileName) != "blue_foreign" {
		t.Errorf("left: %v", left)
	}
}

func TestIdentityWhenEKSDoesNotSay(t *testing.T) {
	denied := awsim.Fault{
		Service: "eks",
		Action:  "DescribeCluster",
		Times:   100,
		Error:   protocol.Errorf("AccessDeniedException", "no").WithStatus(403),
	}
	for _, tc := range []struct {
		name               string
		endpoint           string
		otherCA            bool
		starts, mismatched bool
	}{
		{"nothing is configured: nothing is known", "", false, false, false},
		{"what is configured is this API server", "https://private.example.com", false, true, false},
		{"what is configured is another one", "https://private.example.com", true, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.Sim.Inject(denied)
			cfg := w.config("uid-1")
			cfg.Cluster.Endpoint, cfg.KubernetesVersion = tc.endpoint, "1.32"
			cfg.Cluster.CABundle = base64.StdEncoding.EncodeToString(w.ca)
			local := ekscluster.APIServer{Endpoint: "https://10.100.0.1", CA: w.ca}
			if tc.otherCA {
				local.CA = certificate(t)
			}
			c, err := newCloud(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Preflight(t.Context(), local)
			if (err == nil) != tc.starts || errors.Is(err, cloudprovider.ErrIdentityMismatch) != tc.mismatched {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The name goes to another cluster while the controller runs: noticed at the next look.
func TestNameThatComesToNameAnotherCluster(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	if err := c.RefreshVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	takeOver := awsim.ClusterSpec{
		Name:     clusterName,
		Version:  "1.32",
		Endpoint: "https://new.example.com",
		CA:       certificate(t),
		TakeOver: true,
	}
	if err := w.Sim.SeedCluster(takeOver); err != nil {
		t.Fatal(err)
	}
	if err := c.RefreshVersion(t.Context()); !errors.Is(err, cloudprovider.ErrIdentityMismatch) ||
		!strings.Contains(err.Error(), "https://new.example.com") {
		t.Errorf("got %v", err)
	}
}

// A launch with a lost result returns the same instance again.
func TestLaunchTwice(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	first, err := c.Launch(t.Context(), claim("general-1", onDemand), class)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Launch(t.Context(), claim("general-1", onDemand), class)
	if err != nil || again.ProviderID != first.ProviderID || w.called("CreateFleet") != 1 {
		t.Errorf("%s, then %s with %d calls of CreateFleet, %v", first.ProviderID, again.ProviderID, w.called("CreateFleet"), err)
	}
}

func TestLaunchIsInProgressUntilItsOutcomeIsKnown(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	one := claim("general-1", onDemand)
	w.Sim.Inject(
		awsim.Fault{
			Service:     "ec2",
			Action:      "CreateFleet",
			AfterEffect: true,
			Error:       protocol.Errorf("InternalError", "lost").WithStatus(500),
		},
	)
	if _, err := c.Launch(t.Context(), one, class); err == nil {
		t.Fatal("the answer was lost, and the launch succeeded")
	}
	if !c.Launching(string(one.UID)) {
		t.Error("a launch whose answer was lost does not count as in progress")
	}
	w.advancePastDelays()
	if _, err := c.Launch(t.Context(), one, class); err != nil {
		t.Fatal(err)
	}
	if c.Launching(string(one.UID)) {
		t.Error("a launch that has succeeded counts as in progress")
	}
	if n := len(w.runningInstances()); n != 1 {
		t.Errorf("%d instances", n)
	}
}
