package awstest

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

func TestInstanceLifecycle(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	got, err := c.Launch(t.Context(), claim("general-1", onDemand, in(corev1.LabelTopologyZone, "us-east-1b")), class)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.runningInstances()); n != 1 {
		t.Fatalf("%d instances", n)
	}
	i := w.runningInstances()[0]
	if want := "aws:///us-east-1b/" + i.ID; got.ProviderID != want || got.ImageID != i.ImageID {
		t.Errorf("provider ID %s, image %s; the instance is %s with image %s", got.ProviderID, got.ImageID, want, i.ImageID)
	}
	for key, want := range map[string]string{
		corev1.LabelInstanceTypeStable: i.Type, corev1.LabelTopologyZone: "us-east-1b", karpv1.LabelCapacityType: "on-demand",
		corev1.LabelArchStable: map[string]string{"x86_64": "amd64", "arm64": "arm64"}[i.Architecture], corev1.LabelOSStable: "linux",
		awsv1.LabelInstanceTenancy: "default", awsv1.LabelZoneID: i.ZoneID, corev1.LabelTopologyRegion: "us-east-1",
	} {
		if got.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, got.Labels[key], want)
		}
	}
	if cpu := got.Capacity.Cpu().Value(); cpu != int64(i.VCPUs) {
		t.Errorf("capacity has %d CPUs, the instance %d", cpu, i.VCPUs)
	}
	if _, efa := got.Capacity[awsv1.ResourceEFA]; efa {
		t.Error("an instance without EFA interface promises EFA")
	}
	if got.Annotations[awsv1.AnnotationNodeClassHash] == "" ||
		got.Annotations[awsv1.AnnotationInstanceProfileName] != class.Status.InstanceProfile {
		t.Errorf("annotations %v", got.Annotations)
	}
	if !strings.HasSuffix(i.InstanceProfileARN, "/"+class.Status.InstanceProfile) ||
		!strings.Contains(string(i.UserData), "kind: NodeConfig") {
		t.Errorf("profile %s, user data %q", i.InstanceProfileARN, i.UserData)
	}

	t.Run("not shown by EC2 yet, and known all the same", func(t *testing.T) {
		seen, err := c.Get(t.Context(), got.ProviderID)
		if err != nil || seen.State != cloudprovider.Pending || seen.Owner != cloudprovider.Ours {
			t.Errorf("%+v, %v", seen, err)
		}
		if all, err := c.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("listed %d, %v", len(all), err)
		}
	})
	w.advancePastDelays()
	t.Run("running", func(t *testing.T) {
		all, err := c.List(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("listed %d, %v", len(all), err)
		}
		seen := all[0]
		if seen.State != cloudprovider.Running || seen.ProviderID != got.ProviderID || seen.NodeClaim != "general-1" || seen.Owner != cloudprovider.Ours ||
			seen.SubnetID != i.SubnetID || len(seen.SecurityGroupIDs) == 0 ||
			seen.Tags["team"] != "a" ||
			seen.CapacityType != "on-demand" {
			t.Errorf("%+v", seen)
		}
	})
	t.Run("terminated", func(t *testing.T) {
		for range 2 {
			if err := c.Terminate(t.Context(), destroytest.Permit(got.ProviderID)); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.called("TerminateInstances"); n != 1 {
			t.Errorf("TerminateInstances was called %d times", n)
		}
		w.advancePastDelays()
		if err := c.Terminate(t.Context(), destroytest.Permit(got.ProviderID)); !errors.Is(err, cloudprovider.ErrNotFound) {
			t.Errorf("terminating what is gone: %v", err)
		}
		if _, err := c.Get(t.Context(), got.ProviderID); !errors.Is(err, cloudprovider.ErrNotFound) {
			t.Errorf("reading what is gone: %v", err)
		}
		if all, err := c.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("listed %d, %v", len(all), err)
		}
	})
}

// A process that has just started cannot report an instance that EC2 does not show yet from one that never was.
func TestUnknownInstance(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	const id = "aws:///us-east-1a/i-0123456789abcdef0"
	if _, err := c.Get(t.Context(), id); !errors.Is(err, instance.ErrNotVisible) || errors.Is(err, cloudprovider.ErrNotFound) {
		t.Errorf("right after the start: %v", err)
	}
	w.Clock.Advance(instance.VisibleWithin)
	if _, err := c.Get(t.Context(), id); !errors.Is(err, cloudprovider.ErrNotFound) {
		t.Errorf("later: %v", err)
	}
	if err := c.Terminate(t.Context(), destroytest.Permit(id)); !errors.Is(err, cloudprovider.ErrNotFound) {
		t.Errorf("terminate: %v", err)
	}
}

func TestSameClusterNameTwice(t *testing.T) {
	w := newWorld(t)
	blue, green := w.start(w.config("uid-blue")), w.start(w.config("uid-green"))
	class, twin := nodeClass("default"), nodeClass("default")
	twin.UID = "uid-of-the-twin"
	resolve(t, blue, class)
	resolve(t, green, twin)
	if class.Status.InstanceProfile == twin.Status.InstanceProfile {
		t.Error("two clusters share an instance profile")
	}
	got, err := blue.Launch(t.Context(), claim("general-1", onDemand), class)
	if err != nil {
		t.Fatal(err)
	}
	other, err := green.Launch(t.Context(), claim("general-1", onDemand), twin)
	if err != nil {
		t.Fatal(err)
	}
	if other.ProviderID == got.ProviderID {
		t.Fatal("two clusters share an instance")
	}
	w.advancePastDelays()
	owners := map[string]cloudprovider.Ownership{}
	all, err := green.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		owners[i.ProviderID] = i.Owner
	}
	if owners[got.ProviderID] != cloudprovider.Foreign || owners[other.ProviderID] != cloudprovider.Ours {
		t.Errorf("the second cluster sees %v", owners)
	}
	if err := green.Terminate(t.Context(), destroytest.Permit(got.ProviderID)); !errors.Is(err, identity.ErrNotOurs) {
		t.Errorf("the second cluster ends the first one's instance: %v", err)
	}
	if err := green.DeleteNodeClassResources(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Hour) // nothing is believed any more
	resolve(t, blue, class)
	before := w.succeeded("CreateLaunchTemplate")
	if _, err := blue.Launch(t.Context(), claim("general-2", onDemand), class); err != nil {
		t.Errorf("after the second cluster cleaned up, the first cannot launch: %v", err)
	}
	if n := w.succeeded("CreateLaunchTemplate"); n != before {
		t.Error("the second cluster deleted the first one's launch template")
	}
	if n := len(w.runningInstances()); n != 3 {
		t.Errorf("%d instances live, want 3", n)
	}
}

func TestIdentityMismatch(t *testing.T) {
	w := newWorld(t)
	c, err := newCloud(w.config("uid-1"))
	if err != nil {
		t.Fatal(err)
	}
	err = c.Preflight(t.Context(), ekscluster.APIServer{Endpoint: "https://other.example.com", CA: certificate(t)})
	var mismatch *ekscluster.IdentityMismatchError
	if !errors.As(err, &mismatch) ||
		!strings.Contains(
			err.Error(),
			`this API server is https://other.example.com, settings.clusterName names "blue", which is `+endpoint,
		) {
		t.Errorf("another cluster's API server: %v", err)
	}
}

func TestCleaningUp(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	if _, err := c.Launch(t.Context(), claim("general-1", onDemand), class); err != nil {
		t.Fatal(err)
	}
	profiles, templates := w.called("CreateInstanceProfile"), w.succeeded("CreateLaunchTemplate")
	if profiles != 1 || templates == 0 {
		t.Fatalf("%d profiles and %d templates were made", profiles, templates)
	}
	for range 2 { // what is gone already is no error
		if err := c.DeleteNodeClassResources(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.called("DeleteInstanceProfile"); n != profiles {
		t.Errorf("%d of %d profiles were deleted", n, profiles)
	}
	if n := w.called("DeleteLaunchTemplate"); n != templates {
		t.Errorf("%d of %d templates were deleted", n, templates)
	}
}

func TestUnusedLaunchTemplatesAreCollected(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	class := nodeClass("default")
	resolve(t, c, class)
	if _, err := c.Launch(t.Context(), claim("general-1", onDemand), class); err != nil {
		t.Fatal(err)
	}
	collect := func() int {
		before := w.called("DeleteLaunchTemplate")
		if err := c.CollectLaunchTemplates(t.Context(), w.Clock.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
		return w.called("DeleteLaunchTemplate") - before
	}
	w.Clock.Advance(2 * time.Minute)
	if n := collect(); n != 0 {
		t.Errorf("%d templates were deleted two minutes after their use", n)
	}
	w.Clock.Advance(time.Hour)
	if n, made := collect(), w.succeeded("CreateLaunchTemplate"); n != made {
		t.Errorf("%d of %d unused templates were deleted", n, made)
	}
	if _, err := c.Launch(t.Context(), claim("general-2", onDemand), class); err != nil {
		t.Errorf("launch after collection: %v", err)
	}
}
