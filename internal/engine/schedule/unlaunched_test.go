package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// claim is a NodeClaim without an instance, in a zone, for pods. All but its zone and pool is open.
func claim(pool, zone string, pods ...*corev1.Pod) snapshot.Node {
	return Node("claim", pool, func(n *snapshot.Node) {
		n.Launched, n.Registered, n.Initialized, n.Ready = false, false, false, false
		n.Labels = map[string]string{karpv1.LabelNodePool: pool, Zone: zone}
		for _, p := range pods {
			n.Nominated = append(n.Nominated, p.UID)
		}
	})
}

// A claim without an instance becomes nothing that no node is and no pool offers. So its zone is no domain for pods that
// demand such a label, by any of their alternatives.
func TestClaimsGetNoLabelThatNobodyOffers(t *testing.T) {
	s := World(
		[]snapshot.Pool{Pool("general", Types(), Require(Zone, corev1.NodeSelectorOpIn, "z2"))},
		Pods(3, "web", Labeled("app", "web"), Spread(Zone, 2, "web"),
			Needs(Expr(karpv1.LabelNodePool, corev1.NodeSelectorOpIn, "general")),
			Needs(Expr(corev1.LabelOSStable, corev1.NodeSelectorOpIn, "windows")))...,
	)
	s.Nodes = []snapshot.Node{claim("other", "z1")}
	if p := solveValid(t, s); len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", p.Rejected[0].Reasons)
	}
}

// A label that the claim leaves open and that has no other value than the allowed ones leaves no doubt that the claim's
// pods count.
func TestPodsOfClaimsCountIfNoOtherValueExists(t *testing.T) {
	first := Pod("first", Labeled("app", "web"))
	s := World(
		[]snapshot.Pool{Pool("general", Types(), Require(Zone, corev1.NodeSelectorOpIn, "z2"))},
		append(Pods(2, "web", Labeled("app", "web"), Spread(Zone, 1, "web"),
			Needs(Expr(corev1.LabelOSStable, corev1.NodeSelectorOpNotIn, "windows"))), first)...,
	)
	s.Nodes = []snapshot.Node{claim("other", "z1", first)}
	if p := solveValid(t, s); len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", p.Rejected[0].Reasons)
	}
	windows := []*catalog.InstanceType{WithLabel(Types()[0], corev1.LabelOSStable, "windows")}
	s.Pools = append(s.Pools, Pool("windows", windows, Require(Zone, corev1.NodeSelectorOpIn, "z1")))
	if p := solveValid(t, s); len(p.Rejected) != 1 {
		t.Errorf("%d pods rejected, though the claim may become a Windows node, which does not count", len(p.Rejected))
	}
}

// Pods on a planned node count for a spread if the node has the labels that the spread's pods select, whatever it is launched
// as: here no type has a GPU, and only one pod requests that.
func TestPodsOnPlannedNodesCountWhateverIsLaunched(t *testing.T) {
	const gpu = "example.com/gpu"
	var types []*catalog.InstanceType
	for _, it := range Types() {
		types = append(types, WithLabel(it, gpu))
	}
	without := Needs(Expr(gpu, corev1.NodeSelectorOpDoesNotExist))
	pods := append(Pods(2, "web", Labeled("app", "web"), Requests("cpu", "100m")),
		Pod("one-more", Requests("cpu", "100m"), Spread(karpv1.LabelNodePool, 1, "web"), Near(corev1.LabelInstanceTypeStable, "web"), without))
	s := World([]snapshot.Pool{Pool("general", types)}, pods...)
	s.Labels.WellKnown[gpu] = true
	if p := solveValid(t, s); len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", p.Rejected[0].Reasons)
	}
}

// TestNoNewZoneForSpreadsOfNominatedPods: a plan has given up a zone without capacity, and launched a node in another for pods of a spread.
// By the time the zone has capacity, the node is in flight: a node in that zone would leave too many pods on it.
func TestNoNewZoneForSpreadsOfNominatedPods(t *testing.T) {
	web := Labeled("app", "web")
	pods := Pods(4, "w", web, Requests("cpu", "1"), Spread(Zone, 1, "web"))
	inFlight := Node("n", "general", inZone("z2"), func(n *snapshot.Node) {
		n.Initialized = false
		for _, pod := range pods[:3] {
			n.Nominated = append(n.Nominated, pod.UID)
		}
	})
	old := occupied("old", "z1", Pods(2, "old", web)...)
	checkPlans(t, []planCase{
		{"three in flight", withNodes(world(pods...), inFlight, old), []string{"on n: w x3", "general m.small z1: w"}},
	})
}
