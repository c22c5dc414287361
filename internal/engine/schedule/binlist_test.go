package schedule

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// zonalPods are pods that fill nodes of one zone, and others that may not go to that zone while nothing balances them:
// pods of "zonal" count for the spread of "even", which has none of its own.
func zonalPods(n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, 2*n)
	for i := range n {
		pods = append(pods,
			enginetest.Pod(fmt.Sprintf("zonal-%04d", i), enginetest.Labeled("app", "zonal"), enginetest.Requests("cpu", "500m"),
				enginetest.Apart(enginetest.Host, "zonal"), enginetest.Selects(enginetest.Zone, "z1")),
			enginetest.Pod(fmt.Sprintf("even-%04d", i), enginetest.Labeled("app", "even"), enginetest.Requests("cpu", "100m"),
				enginetest.Spread(enginetest.Zone, 1, "zonal")))
	}
	return pods
}

// The work for a pod must not grow with the nodes in domains that topology has closed to it.
func TestBinsOfClosedDomainsAreNotCheckedForEachPod(t *testing.T) {
	stepsPerPod := func(n int) float64 {
		p := Solve(enginetest.World([]snapshot.Pool{enginetest.Pool("general", enginetest.Types())}, zonalPods(n)...), Budget{FirstFitOnly: true})
		if len(p.Rejected) > 0 {
			t.Fatalf("%d pods are rejected: %v", len(p.Rejected), p.Rejected[0].Reasons)
		}
		return float64(p.Stats.Steps) / float64(n)
	}
	few, many := stepsPerPod(100), stepsPerPod(800)
	if many > 2*few {
		t.Errorf("a pod takes %.0f steps among 800 and %.0f among 100", many, few)
	}
}

// preferringPods are pods of ten Deployments that prefer one zone, and zones and hosts apart: most of it is given up.
func preferringPods(n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, n)
	for i := range n {
		app := fmt.Sprintf("app-%d", i%10)
		pods = append(pods, enginetest.Pod(fmt.Sprintf("%s-%05d", app, i), enginetest.Labeled("app", app),
			enginetest.Requests("cpu", "100m"), enginetest.Prefers(1, enginetest.Expr(enginetest.Zone, corev1.NodeSelectorOpIn, "z1")),
			enginetest.PreferApart(10, enginetest.Zone, app), enginetest.PreferApart(1, enginetest.Host, app)))
	}
	return pods
}

// The work for a pod must not grow with the nodes that can no longer meet what it prefers.
func TestBinsThatCannotMeetPreferencesAreNotCheckedForEachPod(t *testing.T) {
	stepsPerPod := func(n int) float64 {
		p := Solve(enginetest.World([]snapshot.Pool{enginetest.Pool("general", enginetest.Types())}, preferringPods(n)...), Budget{})
		if len(p.Rejected) > 0 {
			t.Fatalf("%d pods are rejected: %v", len(p.Rejected), p.Rejected[0].Reasons)
		}
		return float64(p.Stats.Steps) / float64(n)
	}
	few, many := stepsPerPod(1000), stepsPerPod(4000)
	if many > 1.5*few {
		t.Errorf("a pod takes %.0f steps among 4,000 and %.0f among 1,000", many, few)
	}
}
