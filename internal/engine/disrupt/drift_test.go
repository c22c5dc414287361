package disrupt_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func anyBudget(np *karpv1.NodePool) {
	np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
}

// stale is a node that drifted so many hours ago, with pods.
func driftedNode(name, pool string, hours int, pods ...*corev1.Pod) snapshot.Node {
	return Node(name, pool, func(n *snapshot.Node) {
		n.Claim, n.ClaimUID = name, types.UID(name)
		n.Registered, n.Initialized, n.Ready, n.Launched = true, true, true, true
		n.DriftedAt = Now().Add(-time.Duration(hours) * time.Hour)
		n.Allocatable = Resources("cpu", "1", "memory", "4Gi", "pods", "110")
		n.Capacity = n.Allocatable
		for _, p := range pods {
			n.Pods = append(n.Pods, Bound(p, name))
		}
	})
}

func worldOf(pools []snapshot.Pool, nodes ...snapshot.Node) *snapshot.Snapshot {
	s := World(pools)
	s.Nodes = nodes
	return s
}

// tries is how many nodes drift may simulate.
const maxTried = 2

// next is the command that drift finds, and the nodes that it cannot replace.
func nextDrift(s *snapshot.Snapshot, a *disrupt.DriftBackoff) (*disrupt.Command, []disrupt.Unconsolidatable) {
	v := disrupt.NewView(s)
	order := a.DriftOrder(v.Drifted(false), s.Now)
	return disrupt.Drift(
		schedule.Compile(s),
		v,
		disrupt.DriftSearch{
			Order:         order,
			Remaining:     v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionDrifted)),
			MaxRejections: maxTried,
			Budget:        schedule.Budget{},
		},
	)
}

func nameOf(cmd *disrupt.Command) string {
	if cmd == nil {
		return ""
	}
	return cmd.Candidates[0].Node.Name
}

func TestDrift(t *testing.T) {
	one := func() []snapshot.Pool { return []snapshot.Pool{Pool("p", Types(), anyBudget)} }
	none := &disrupt.DriftBackoff{}
	t.Run("the oldest goes first, with its replacement", func(t *testing.T) {
		cmd, _ := nextDrift(
			worldOf(
				one(),
				driftedNode("young", "p", 1, Pod("a", Requests("cpu", "700m"))),
				driftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m"))),
			),
			none,
		)
		if nameOf(cmd) != "old" || len(cmd.Plan.Launches) != 1 || len(cmd.Plan.Launches[0].Pods) != 1 ||
			cmd.Reason != karpv1.DisruptionDrifted ||
			cmd.ConsolidationType != "" {
			t.Errorf("%+v", cmd)
		}
	})
	t.Run("the oldest cannot be replaced, so the next is", func(t *testing.T) {
		cmd, left := nextDrift(
			worldOf(
				one(),
				driftedNode("young", "p", 1, Pod("a", Requests("cpu", "700m"))),
				driftedNode("old", "p", 2, Pod("b", Requests("cpu", "150"))),
			),
			none,
		)
		if nameOf(cmd) != "young" || len(left) != 1 || left[0].Candidate.Node.Name != "old" ||
			!strings.HasPrefix(left[0].Message, "Not all pods would schedule, default/b => ") {
			t.Errorf("%s is replaced; left %+v", nameOf(cmd), left)
		}
	})
	t.Run("an empty node goes before an older one", func(t *testing.T) {
		cmd, _ := nextDrift(worldOf(one(), driftedNode("empty", "p", 1), driftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m")))), none)
		if nameOf(cmd) != "empty" || len(cmd.Plan.Launches) != 0 {
			t.Errorf("%+v", cmd)
		}
	})
	t.Run("one node may need three replacements", func(t *testing.T) {
		large := driftedNode(
			"large",
			"p",
			1,
			Pod("a", Requests("cpu", "700m")),
			Pod("b", Requests("cpu", "700m")),
			Pod("c", Requests("cpu", "700m")),
		)
		large.Allocatable = Resources("cpu", "4", "memory", "16Gi", "pods", "110")
		cmd, _ := nextDrift(worldOf([]snapshot.Pool{Pool("p", Types()[:1], anyBudget)}, large), none)
		if cmd == nil || len(cmd.Plan.Launches) != 3 {
			t.Errorf("%+v", cmd)
		}
	})
	t.Run("a replacement that a pending pod would share is provisioned for that pod first", func(t *testing.T) {
		s := worldOf(one(), driftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m"))))
		s.Pods = []*corev1.Pod{Pod("waits", Requests("cpu", "700m"), Near(Host, "b")), Pod("other", Requests("cpu", "100m"))}
		Labeled("app", "b")(s.Nodes[0].Pods[0])
		cmd, left := nextDrift(s, none)
		if cmd != nil || len(left) != 1 || !strings.Contains(left[0].Message, "waits for a node that would be shared") {
			t.Errorf("%+v, left %+v", cmd, left)
		}
	})
	t.Run("no pod moves to a node that is not initialized", func(t *testing.T) {
		coming := Node("coming", "p", func(n *snapshot.Node) {
			n.Claim, n.Launched, n.Initialized = "coming", true, false
			n.Allocatable = Resources("cpu", "8", "memory", "16Gi", "pods", "110")
		})
		cmd, left := nextDrift(worldOf(one(), driftedNode("old", "p", 2, Pod("b", Requests("cpu", "700m"))), coming), none)
		if cmd != nil || !strings.Contains(left[0].Message, "would schedule against uninitialized nodeclaim/coming, node/coming") {
			t.Errorf("%+v, left %+v", cmd, left)
		}
	})
	t.Run("nodes that budgets block do not count as tried", func(t *testing.T) {
		pools := append(one(), Pool("held", Types(), anyBudget))
		pools[1].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		nodes := []snapshot.Node{driftedNode("young", "p", 1)}
		for k := range maxTried {
			nodes = append(nodes, driftedNode(fmt.Sprintf("old-%d", k), "held", 2+k))
		}
		if cmd, _ := nextDrift(worldOf(pools, nodes...), none); nameOf(cmd) != "young" {
			t.Errorf("%q is replaced", nameOf(cmd))
		}
	})
	t.Run("after the most tries the others wait for the next pass", func(t *testing.T) {
		nowhere := func(name string) *corev1.Pod { return Pod(name, Requests("cpu", "150")) }
		nodes := []snapshot.Node{driftedNode("young", "p", 1, Pod("fits", Requests("cpu", "700m")))}
		for k := range maxTried {
			nodes = append(nodes, driftedNode(fmt.Sprintf("old-%d", k), "p", 2+k, nowhere(fmt.Sprintf("pod-%d", k))))
		}
		cmd, left := nextDrift(worldOf(one(), nodes...), none)
		if cmd != nil || len(left) != maxTried {
			t.Errorf("%q is replaced, left %+v", nameOf(cmd), left)
		}
		if cmd, _ := nextDrift(worldOf(one(), nodes[:maxTried]...), none); nameOf(cmd) != "young" {
			t.Errorf("%q is replaced, want the one that is left", nameOf(cmd))
		}
	})
	t.Run("the budget is respected", func(t *testing.T) {
		pools := one()
		pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
		leaving := driftedNode("leaving", "p", 3)
		leaving.Deleting = true
		if cmd, _ := nextDrift(worldOf(pools, driftedNode("old", "p", 2), leaving), none); cmd != nil {
			t.Errorf("%s is replaced", nameOf(cmd))
		}
	})
}

func TestDriftOrderAndBackoff(t *testing.T) {
	pools := []snapshot.Pool{Pool("p", Types(), anyBudget), Pool("q", Types(), anyBudget)}
	s := worldOf(pools,
		driftedNode("p1", "p", 9, Pod("a", Requests("cpu", "700m"))), driftedNode("p2", "p", 8, Pod("b", Requests("cpu", "700m"))),
		driftedNode("q1", "q", 2, Pod("c", Requests("cpu", "700m"))), driftedNode("q2", "q", 1, Pod("d", Requests("cpu", "700m"))))
	order := func(a *disrupt.DriftBackoff, now time.Time) []string {
		var out []string
		for _, c := range a.DriftOrder(disrupt.NewView(s).Drifted(false), now) {
			out = append(out, c.Node.Name)
		}
		return out
	}
	now := s.Now
	check := func(name string, a *disrupt.DriftBackoff, at time.Time, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, order(a, at)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	a := &disrupt.DriftBackoff{}
	check("at first", a, now, "p1", "q1", "p2", "q2")
	a.Started("p", now)
	check("p had its turn", a, now, "q1", "p1", "q2", "p2")
	a.Failed("p", []types.UID{"p1"}, now, 0)
	check("p backs off", a, now.Add(59*time.Second), "q1", "q2")
	check("failed claims come last", a, now.Add(time.Minute), "q1", "p2", "q2", "p1")
	for i, pause := range []time.Duration{2, 4, 8, 10, 10} {
		t.Run(fmt.Sprintf("failure %d", i+2), func(t *testing.T) {
			a.Failed("p", nil, now, 0)
			if !a.BacksOff("p", now.Add(pause*time.Minute-time.Second)) || a.BacksOff("p", now.Add(pause*time.Minute)) {
				t.Errorf("does not back off for %d minutes", pause)
			}
		})
	}
	if a.Failed("p", nil, now, 0.999); !a.BacksOff("p", now.Add(12*time.Minute)) || a.BacksOff("p", now.Add(13*time.Minute)) {
		t.Error("jitter is not within a quarter")
	}
	a.Succeeded("p")
	check("a success resets the backoff", a, now, "q1", "p2", "q2", "p1")
	s.Nodes = s.Nodes[1:]
	a.Prune(disrupt.NewView(s))
	s.Nodes = append(s.Nodes, driftedNode("p1", "p", 9, Pod("a", Requests("cpu", "700m"))))
	check("a deleted claim is forgotten", a, now, "q1", "p1", "q2", "p2")
}

func TestStaticDrift(t *testing.T) {
	static := func(replicas int64, budget string) *karpv1.NodePool {
		return Pool("s", nil, func(np *karpv1.NodePool) {
			np.Spec.Replicas = &replicas
			np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: budget}}
		}).NodePool
	}
	nodes := func(n, drifted int) (out []snapshot.Node) {
		for i := range n {
			node := driftedNode(fmt.Sprintf("n%d", i), "s", 5-i, Pod(fmt.Sprint("x", i)))
			if i >= drifted {
				node.DriftedAt = time.Time{}
			}
			out = append(out, node)
		}
		return out
	}
	failed := func(ago time.Duration) (a disrupt.DriftBackoff) {
		a.Failed("s", []types.UID{nodes(1, 1)[0].ClaimUID}, World(nil).Now.Add(-ago), 0)
		return a
	}
	none := disrupt.DriftBackoff{}
	tests := []struct {
		name     string
		pool     *karpv1.NodePool
		nodes    []snapshot.Node
		attempts disrupt.DriftBackoff
		want     []string
	}{
		{"a replacement has just failed", static(5, "2"), nodes(5, 4), failed(0), nil},
		{"one failed a while ago: others go first", static(5, "2"), nodes(5, 4), failed(time.Minute), []string{"n1", "n2"}},
		{"as many as the budget allows, the oldest first", static(5, "2"), nodes(5, 4), none, []string{"n0", "n1"}},
		{"replicas 1, 2 active: scale down first", static(1, "100%"), nodes(2, 2), none, nil},
		{"replicas 0", static(0, "100%"), nodes(1, 1), none, nil},
		{"no node is drifted", static(5, "100%"), nodes(5, 0), none, nil},
		{"a node that waits for its replacement counts once", static(3, "100%"), func() []snapshot.Node {
			out := nodes(3, 3)
			out[0].Disrupting = true
			return out
		}(), none, []string{"n1", "n2"}},
		{"its replacement is initialized: one too many until the old node is deleted", static(3, "100%"), func() []snapshot.Node {
			out := nodes(4, 3)
			out[0].Disrupting = true
			return out
		}(), none, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := World(nil)
			s.Closed, s.Nodes = []*karpv1.NodePool{tt.pool}, tt.nodes
			v := disrupt.NewView(s)
			var got []string
			for _, turn := range tt.attempts.StaticDrift(v, v.RemainingBudgets(disrupt.Allowances(s, karpv1.DisruptionDrifted))) {
				for _, c := range turn.Candidates {
					got = append(got, c.Node.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("replaced (-want +got):\n%s", diff)
			}
			if len(v.Drifted(false)) != 0 {
				t.Error("a node of a static pool is in the list for other pools")
			}
		})
	}
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
			[]snapshot.Pool{Pool("p", []*catalog.InstanceType{Type("m.large", 1)}, anyBudget)},
			driftedNode("a", "p", 1, Pod("x")),
			driftedNode("b", "p", 1),
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
