package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestAnotherOrderOfTheQueuePlacesMorePods checks that a pod waits only if no order places more pods: the largest pods
// come first, and the node that a limit leaves is not theirs if more pods share it.
func TestAnotherOrderOfTheQueuePlacesMorePods(t *testing.T) {
	oneNode := pool(Limit("nodes", "1"))
	web := Pods(9, "web", app("web", Requests("cpu", "100m"))...)
	different := func(n int) []*corev1.Pod { // classes of one pod each
		var out []*corev1.Pod
		for i := range n {
			out = append(out, Pod(fmt.Sprintf("small-%d", i), app("web", Requests("cpu", fmt.Sprintf("%dm", 101+i)))...))
		}
		return out
	}
	apart := Pod("big", app("big", Apart(Host, "web"), Requests("cpu", "3"))...)
	once := disk{name: "data", class: "wait", edit: oncePod}
	checkPlans(t, []planCase{
		{
			"anti-affinity to all others", World(oneNode, join([]*corev1.Pod{apart}, web)...),
			[]string{"general m.small: web x9", "unschedulable (Limits): big"},
		},
		{
			"six different pods", World(oneNode, join([]*corev1.Pod{apart}, different(5))...),
			[]string{"general m.small: small-0, small-1, small-2, small-3, small-4", "unschedulable (Limits): big"},
		},
		{
			"a limit that one large pod would use up",
			World(pool(Limit("cpu", "8")), join([]*corev1.Pod{Pod("big", Requests("cpu", "8"))}, Pods(20, "small", Requests("cpu", "390m")))...),
			[]string{"general m.xlarge: small x20", "unschedulable (Limits): big"},
		},
		{
			"the user of a claim waits itself",
			storage(World(pool(), Pod("big", Requests("cpu", "2"), Claims("data"), Near(Zone, "nobody")), Pod("small", Claims("data"))), once),
			[]string{"general m.small: small", "unschedulable (VolumeInUse): big"},
		},
	})
}

// TestRetriesAreBounded checks that pods that wait in a large queue cost a bounded number of steps.
func TestRetriesAreBounded(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 400 {
		pods = append(pods, Pod(fmt.Sprintf("p-%03d", i), Requests("cpu", fmt.Sprintf("%dm", 100+i))))
	}
	plenty := schedule.Solve(World(pool(), pods...), schedule.Budget{})
	limited := schedule.Solve(World(pool(Limit("cpu", "30")), pods...), schedule.Budget{})
	if len(plenty.Rejected) > 0 || len(limited.Rejected) == 0 {
		t.Fatalf("%d and %d pods rejected", len(plenty.Rejected), len(limited.Rejected))
	}
	if most := 3*plenty.Stats.Steps + 200_000; limited.Stats.Steps > most {
		t.Errorf("%d steps, want at most %d", limited.Stats.Steps, most)
	}
}

// TestClaimsForOnePodLeaveTheZoneOpen checks that a pod's node need not be in one zone for the sake of pods that cannot
// use its volume beside it: minValues may need types of several zones.
func TestClaimsForOnePodLeaveTheZoneOpen(t *testing.T) {
	types := []*catalog.InstanceType{
		onlyIn("z1", Type("one", 0.1, "cpu", "2", "memory", "8Gi")), onlyIn("z2", Type("two", 0.1, "cpu", "2", "memory", "8Gi")),
	}
	pools := []snapshot.Pool{Pool("general", types, Require(corev1.LabelInstanceTypeStable, exists), MinValues(2))}
	checkPlans(t, []planCase{{
		"minValues over zones", storage(World(pools, Pods(2, "a", Claims("data"))...), disk{name: "data", class: "wait", edit: oncePod}),
		[]string{"general one: a", "unschedulable (VolumeInUse): a"},
	}})
}
