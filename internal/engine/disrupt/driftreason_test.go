package disrupt_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func worldOf(pools []snapshot.Pool, nodes ...snapshot.Node) *snapshot.Snapshot {
	s := World(pools)
	s.Nodes = nodes
	return s
}

func claimWith(labels, annotations map[string]string) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{}
	c.Labels, c.Annotations = labels, annotations
	return c
}

func TestDriftReason(t *testing.T) {
	hash := func(hash, version string) map[string]string {
		out := map[string]string{}
		if hash != "" {
			out[karpv1.AnnotationNodePoolHash] = hash
		}
		if version != "" {
			out[karpv1.AnnotationNodePoolHashVersion] = version
		}
		return out
	}
	require := func(key string, op corev1.NodeSelectorOperator, values ...string) func(*karpv1.NodePool) {
		return Require(key, op, values...)
	}
	const key = "example.com/size"
	has := func(v string) map[string]string { return map[string]string{key: v} }
	tests := []struct {
		name    string
		claim   *karpv1.NodeClaim
		pool    func(*karpv1.NodePool)
		stamped map[string]string
		want    string
	}{
		{"hashes differ", claimWith(nil, hash("1", "v")), func(*karpv1.NodePool) {}, hash("2", "v"), disrupt.NodePoolDrifted},
		{"hashes are equal", claimWith(nil, hash("1", "v")), func(*karpv1.NodePool) {}, hash("1", "v"), ""},
		{
			"the hash is checked first",
			claimWith(has("a"), hash("1", "v")),
			require(key, corev1.NodeSelectorOpIn, "b"),
			hash("2", "v"),
			disrupt.NodePoolDrifted,
		},
		{"the claim has no hash", claimWith(nil, hash("", "v")), func(*karpv1.NodePool) {}, hash("2", "v"), ""},
		{"the pool has no hash", claimWith(nil, hash("1", "v")), func(*karpv1.NodePool) {}, hash("", "v"), ""},
		{"another hash version", claimWith(nil, hash("1", "v")), func(*karpv1.NodePool) {}, hash("2", "w"), ""},
		{"no hash version", claimWith(nil, hash("1", "")), func(*karpv1.NodePool) {}, hash("2", "v"), ""},
		{"the requirement was extended", claimWith(has("a"), nil), require(key, corev1.NodeSelectorOpIn, "a", "b"), nil, ""},
		{"the requirement was relaxed", claimWith(has("a"), nil), require(key, corev1.NodeSelectorOpExists), nil, ""},
		{
			"the requirement was narrowed",
			claimWith(has("a"), nil),
			require(key, corev1.NodeSelectorOpNotIn, "a"),
			nil,
			disrupt.RequirementsDrifted,
		},
		{
			"the requirement was changed",
			claimWith(has("a"), nil),
			require(key, corev1.NodeSelectorOpIn, "b"),
			nil,
			disrupt.RequirementsDrifted,
		},
		{
			"the label was forbidden",
			claimWith(has("a"), nil),
			require(key, corev1.NodeSelectorOpDoesNotExist),
			nil,
			disrupt.RequirementsDrifted,
		},
		{
			"In on a label that the claim lacks",
			claimWith(nil, nil),
			require(key, corev1.NodeSelectorOpIn, "a"),
			nil,
			disrupt.RequirementsDrifted,
		},
		{
			"Exists on a label that the claim lacks",
			claimWith(nil, nil),
			require(key, corev1.NodeSelectorOpExists),
			nil,
			disrupt.RequirementsDrifted,
		},
		{
			"no well-known label is exempt",
			claimWith(nil, nil),
			require(corev1.LabelArchStable, corev1.NodeSelectorOpIn, "amd64"),
			nil,
			disrupt.RequirementsDrifted,
		},
		{"NotIn allows a missing label", claimWith(nil, nil), require(key, corev1.NodeSelectorOpNotIn, "a"), nil, ""},
		{"DoesNotExist allows a missing label", claimWith(nil, nil), require(key, corev1.NodeSelectorOpDoesNotExist), nil, ""},
		{"Gt 10 against 5", claimWith(has("5"), nil), require(key, corev1.NodeSelectorOpGt, "10"), nil, disrupt.RequirementsDrifted},
		{"Lt 1 against 2", claimWith(has("2"), nil), require(key, corev1.NodeSelectorOpLt, "1"), nil, disrupt.RequirementsDrifted},
		{"Gt 10 against 11", claimWith(has("11"), nil), require(key, corev1.NodeSelectorOpGt, "10"), nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool := Pool("p", nil, tt.pool).NodePool
			pool.Annotations = tt.stamped
			got, err := disrupt.DriftReason(tt.claim, pool, World(nil).Labels)
			if err != nil || got != tt.want {
				t.Errorf("%q, error %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestStillOffered(t *testing.T) {
	of := func(instanceType, zone, capacityType string) map[string]string {
		return map[string]string{corev1.LabelInstanceTypeStable: instanceType, Zone: zone, Capacity: capacityType, ReservationID: "cr-1"}
	}
	only := func(offerings ...catalog.Offering) []*catalog.InstanceType {
		return []*catalog.InstanceType{WithOfferings(Type("m.large", 1), offerings...)}
	}
	unavailable := Offering("z1", karpv1.CapacityTypeOnDemand, 1)
	unavailable.Available = false
	tests := []struct {
		name   string
		labels map[string]string
		types  []*catalog.InstanceType
		want   bool
	}{
		{"offered", of("m.large", "z1", karpv1.CapacityTypeSpot), only(Offering("z1", karpv1.CapacityTypeSpot, 1)), true},
		{"unavailable now", of("m.large", "z1", karpv1.CapacityTypeOnDemand), only(unavailable), true},
		{"another zone", of("m.large", "z2", karpv1.CapacityTypeOnDemand), only(unavailable), false},
		{"another type", of("m.small", "z1", karpv1.CapacityTypeOnDemand), only(unavailable), false},
		{"no label", map[string]string{}, only(unavailable), false},
		{"reserved, on-demand remains", of("m.large", "z1", karpv1.CapacityTypeReserved), only(unavailable), true},
		{"reserved, spot remains", of("m.large", "z1", karpv1.CapacityTypeReserved), only(Offering("z1", karpv1.CapacityTypeSpot, 1)), false},
		{"reserved, nothing remains", of("m.large", "z1", karpv1.CapacityTypeReserved), nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := disrupt.StillOffered(claimWith(tt.labels, nil), tt.types, World(nil).Labels, ReservationID); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// TestPoolCosts adds up pools while offerings vanish, return, and change their prices.
func TestPoolCosts(t *testing.T) {
	node := func(name, zone string) snapshot.Node {
		return Node(name, "p", func(n *snapshot.Node) {
			n.Claim = name
			n.Labels = map[string]string{corev1.LabelInstanceTypeStable: "m.large", Zone: zone, Capacity: karpv1.CapacityTypeOnDemand}
		})
	}
	offers := func(offerings ...catalog.Offering) []snapshot.Pool {
		return []snapshot.Pool{Pool("p", []*catalog.InstanceType{WithOfferings(Type("m.large", 1), offerings...)})}
	}
	z1, z2 := Offering("z1", karpv1.CapacityTypeOnDemand, 1), Offering("z2", karpv1.CapacityTypeOnDemand, 2)
	raised := z1
	raised.Price = 3
	unlabeled := node("u", "z1")
	delete(unlabeled.Labels, Capacity)
	var l disrupt.PoolCosts
	steps := []struct {
		name    string
		s       *snapshot.Snapshot
		want    float64
		unknown int
	}{
		{"two nodes, and one without a label", worldOf(offers(z1, z2), node("a", "z1"), node("b", "z2"), unlabeled), 3, 0},
		{"an offering vanishes", worldOf(offers(z2), node("a", "z1"), node("b", "z2")), 3, 0},
		{"another node of it", worldOf(offers(z2), node("a", "z1"), node("a2", "z1"), node("b", "z2")), 4, 0},
		{"it is back, at a higher price", worldOf(offers(raised, z2), node("a", "z1"), node("a2", "z1"), node("b", "z2")), 8, 0},
		{"a node is deleted", worldOf(offers(raised, z2), node("a", "z1"), node("b", "z2")), 5, 0},
		{"the pool cannot launch", worldOf([]snapshot.Pool{Pool("p", nil)}, node("a", "z1"), node("b", "z2")), 5, 0},
		{"an offering that was never seen", worldOf(offers(raised), node("a", "z1"), node("c", "z3")), 3, 1},
	}
	for _, step := range steps {
		totals, unknown := l.Update(disrupt.NewView(step.s))
		if totals["p"] != step.want || unknown["p"] != step.unknown {
			t.Errorf("%s: $%v/h, %d unknown, want $%v/h, %d", step.name, totals["p"], unknown["p"], step.want, step.unknown)
		}
	}
}

func TestFingerprint(t *testing.T) {
	baseWorld := func() *snapshot.Snapshot {
		s := worldOf(
			[]snapshot.Pool{Pool("p", []*catalog.InstanceType{Type("m.large", 1)}, AnyBudget)},
			DriftedNode("a", "p", 1, Pod("x")),
			DriftedNode("b", "p", 1),
		)
		return s
	}
	sum := func(s *snapshot.Snapshot) uint64 {
		v := disrupt.NewView(s)
		return v.Fingerprint(v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionUnderutilized)))
	}
	base := sum(baseWorld())
	later := baseWorld()
	later.Now = later.Now.Add(time.Minute)
	if sum(baseWorld()) != base || sum(later) != base {
		t.Error("equal worlds differ")
	}
	for name, change := range map[string]func(s *snapshot.Snapshot){
		"a pod comes":                   func(s *snapshot.Snapshot) { s.Nodes[1].Pods = []*corev1.Pod{Pod("y")} },
		"a pod is pending":              func(s *snapshot.Snapshot) { s.Pods = []*corev1.Pod{Pod("y")} },
		"a node becomes consolidatable": func(s *snapshot.Snapshot) { s.Nodes[0].Consolidatable = !s.Nodes[0].Consolidatable },
		"a price changes":               func(s *snapshot.Snapshot) { s.Pools[0].InstanceTypes[0].Offerings[0].Price = 2 },
		"the budget changes": func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
		},
		"a node is annotated with do-not-disrupt": func(s *snapshot.Snapshot) {
			s.Nodes[0].Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
		},
	} {
		s := baseWorld()
		change(s)
		if sum(s) == base {
			t.Errorf("%s: the fingerprint does not change", name)
		}
	}
}
