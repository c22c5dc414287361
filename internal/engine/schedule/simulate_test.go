package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// afterMoves is the snapshot after a plan without launches has been carried out.
func afterMoves(s *snapshot.Snapshot, gone []int, p schedule.Plan) *snapshot.Snapshot {
	out := *s
	out.Nodes, out.Pods = nil, nil
	for i := range s.Nodes {
		if slices.Contains(gone, i) {
			continue
		}
		n := s.Nodes[i]
		n.Pods = slices.Clone(n.Pods)
		for _, pl := range p.Placements {
			if pl.Node == n.Name && pl.Claim == n.Claim {
				for _, pod := range pl.Pods {
					bound := pod.DeepCopy()
					bound.Spec.NodeName, bound.Status.Phase = n.Name, corev1.PodRunning
					n.Pods = append(n.Pods, bound)
				}
			}
		}
		out.Nodes = append(out.Nodes, n)
	}
	return &out
}

// After a plan is applied, simulations give what they would give had it been carried out.
func TestAppliedPlansEqualExecutedPlans(t *testing.T) {
	held, answered := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 78))
		s := afterPlan(randomWorld(seed))
		s.Pods = nil
		if len(s.Nodes) < 3 {
			continue
		}
		problem := schedule.Compile(s)
		first := r.IntN(len(s.Nodes))
		_, pods := withoutNodes(s, []int{first})
		q := schedule.Simulation{Removed: []int{first}, Pods: pods, Budget: schedule.Budget{FirstFitOnly: true}}
		plan := problem.Simulate(q)
		if len(plan.Launches) > 0 || len(plan.Rejected) > 0 {
			continue
		}
		held++
		before := fingerprint(problem.Simulate(q))
		problem.Apply(q, &plan)
		later := afterMoves(s, q.Removed, plan)
		want := schedule.Compile(later)
		for k := range later.Nodes {
			i := slices.IndexFunc(s.Nodes, func(n snapshot.Node) bool { return n.Name == later.Nodes[k].Name })
			if slices.ContainsFunc(plan.Placements, func(pl schedule.Placement) bool { return pl.Node == s.Nodes[i].Name }) {
				continue
			}
			_, own := withoutNodes(later, []int{k})
			_, same := withoutNodes(s, []int{i})
			expected := want.Simulate(schedule.Simulation{Removed: []int{k}, Pods: own, Budget: schedule.Budget{FirstFitOnly: true}})
			got := problem.Simulate(schedule.Simulation{Removed: []int{i}, Pods: same, Budget: schedule.Budget{FirstFitOnly: true}})
			expected.Stats, got.Stats = schedule.Stats{}, schedule.Stats{}
			if diff := cmp.Diff(fingerprint(expected), fingerprint(got)); diff != "" {
				t.Fatalf("seed %d, without %s, then without %s: want -, got +\n%s", seed, s.Nodes[first].Name, s.Nodes[i].Name, diff)
			}
			answered++
		}
		problem.Revert()
		if diff := cmp.Diff(before, fingerprint(problem.Simulate(q))); diff != "" {
			t.Fatalf("seed %d: once released, want -, got +\n%s", seed, diff)
		}
	}
	if held < 30 || answered < 60 {
		t.Errorf("%d plans held, %d questions were answered: too few to tell", held, answered)
	}
}

// A simulation alone gives what it would give if the snapshot had no pending pods.
func TestASimulationAloneLeavesPendingPodsOut(t *testing.T) {
	answered := 0
	for seed := range uint64(400) {
		s := afterPlan(randomWorld(seed))
		s.Pods = append(s.Pods, Pod("waiting", Requests("cpu", "500m")), Pod("large", Requests("cpu", "3")))
		if len(s.Nodes) == 0 {
			continue
		}
		calm := *s
		calm.Pods = nil
		i := rand.New(rand.NewPCG(seed, 79)).IntN(len(s.Nodes))
		_, pods := withoutNodes(s, []int{i})
		for _, targets := range [][]int{nil, {}} {
			q := schedule.Simulation{Removed: []int{i}, Pods: pods, Targets: targets, Budget: schedule.Budget{FirstFitOnly: true}}
			want := schedule.Compile(&calm).Simulate(q)
			q.Alone = true
			got := schedule.Compile(s).Simulate(q)
			want.Stats, got.Stats = schedule.Stats{}, schedule.Stats{}
			if diff := cmp.Diff(fingerprint(want), fingerprint(got)); diff != "" {
				t.Fatalf("seed %d: without pending pods -, alone +\n%s", seed, diff)
			}
			answered++
		}
	}
	if answered < 400 {
		t.Errorf("%d questions were answered: too few to tell", answered)
	}
}

// Pending pods are scheduled first: a node that they are to go to is not removed without them.
func TestAppliedPlanSchedulesPendingPodsFirst(t *testing.T) {
	node := func(name string, edit ...func(*snapshot.Node)) snapshot.Node { return Node(name, "general", edit...) }
	big := Pod("big", Requests("cpu", "3"))
	running := Bound(Pod("running", Requests("cpu", "1")), "a")
	s := World([]snapshot.Pool{Pool("general", Types(), Limit("cpu", "8"))}, big)
	s.Pools[0].Used = Resources("cpu", "8")
	s.Nodes = []snapshot.Node{
		node("a", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{running} }),
		node("b", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{Bound(Pod("other", Requests("cpu", "2")), "b")} }),
	}
	problem := schedule.Compile(s)
	pending := schedule.Simulation{}
	plan := problem.Simulate(pending)
	if len(plan.Placements) != 1 || plan.Placements[0].Node != "a" {
		t.Fatalf("the pending pod goes to %v, want node a", plan.Placements)
	}
	problem.Apply(pending, &plan)
	if problem.AppliedPlans() != 1 {
		t.Error("the plan does not hold")
	}
	if p := problem.Simulate(schedule.Simulation{Removed: []int{0}, Pods: []*corev1.Pod{running}}); len(p.Rejected) != 1 ||
		p.Rejected[0].Pod != big {
		t.Errorf("without node a, %d pods have no place, want the one that was to come to it", len(p.Rejected))
	}
	if p := problem.Simulate(schedule.Simulation{Removed: []int{1}, Pods: s.Nodes[1].Pods}); len(p.Rejected) != 1 ||
		p.Rejected[0].Pod == big {
		t.Errorf("without node b, the plan is %+v, want its pod to have no place", p)
	}
	problem.Revert()
	if p := problem.Simulate(schedule.Simulation{}); len(p.Placements) != 1 {
		t.Errorf("once released, the pending pod has %d places, want 1", len(p.Placements))
	}
}

// Pods go onto the target nodes, in their order.
func TestTargetNodesInOrder(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types())})
	for k := range 4 {
		s.Nodes = append(s.Nodes, Node(fmt.Sprintf("n%d", k), "general"))
	}
	pod := Bound(Pod("pod", Requests("cpu", "1")), "n0")
	s.Nodes[0].Pods = []*corev1.Pod{pod}
	problem := schedule.Compile(s)
	for _, tt := range []struct {
		into []int
		want string
	}{{nil, "n1"}, {[]int{3, 2}, "n3"}, {[]int{0, 2}, "n2"}, {[]int{}, ""}} {
		p := problem.Simulate(
			schedule.Simulation{Removed: []int{0}, Pods: []*corev1.Pod{pod}, Targets: tt.into, Budget: schedule.Budget{FirstFitOnly: true}},
		)
		got := ""
		if len(p.Placements) > 0 {
			got = p.Placements[0].Node
		}
		if got != tt.want || tt.want == "" && len(p.Launches) != 1 {
			t.Errorf("into %v: the pod goes to %q and %d new nodes, want %q", tt.into, got, len(p.Launches), tt.want)
		}
	}
}

// With existing nodes only, preferences are dropped instead of launching a node.
func TestExistingNodesOnly(t *testing.T) {
	s := World([]snapshot.Pool{Pool("general", Types())})
	pod := Bound(Pod("pod", Requests("cpu", "1"), Labeled("app", "web"), PreferApart(1, Host, "web")), "a")
	s.Nodes = []snapshot.Node{
		Node("a", "general", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{pod} }),
		Node("b", "general", func(n *snapshot.Node) {
			n.Pods = []*corev1.Pod{Bound(Pod("other", Requests("cpu", "1"), Labeled("app", "web")), "b")}
		}),
	}
	problem := schedule.Compile(s)
	for _, here := range []bool{false, true} {
		p := problem.Simulate(
			schedule.Simulation{
				Removed:           []int{0},
				Pods:              []*corev1.Pod{pod},
				ExistingNodesOnly: here,
				Budget:            schedule.Budget{FirstFitOnly: true},
			},
		)
		if got := len(p.Launches); got != 1 && !here || got != 0 && here || here && len(p.Placements) != 1 {
			t.Errorf("here %v: %d launches and %d placements", here, got, len(p.Placements))
		}
	}
}

// The value of pods is no more than any plan for them costs, and that of no node more than its price.
func TestDualValuesAreALowerBound(t *testing.T) {
	for seed := range uint64(100) {
		s := afterPlan(randomWorld(seed))
		s.Pods = nil
		var pods []*corev1.Pod
		all := make([]int, len(s.Nodes))
		for i := range s.Nodes {
			all[i] = i
			pods = append(pods, s.Nodes[i].Pods...)
		}
		problem := schedule.Compile(s)
		w := problem.DualValues(pods)
		total := 0.0
		for _, p := range pods {
			total += w.Pod(p)
		}
		for i := range s.Nodes {
			if room := w.Room(i); room < 0 {
				t.Errorf("seed %d: the room of %s is worth %v", seed, s.Nodes[i].Name, room)
			}
		}
		if diff := total - w.Total; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("seed %d: pods are worth %v together, the total is %v", seed, total, w.Total)
		}
		p := problem.Simulate(schedule.Simulation{Removed: all, Pods: pods})
		reserved := slices.ContainsFunc(p.Launches, func(l schedule.Launch) bool { return l.Offering.ReservationID != "" })
		if len(p.Rejected) == 0 && !reserved && w.Total > p.Stats.HourlyCost+1e-9 {
			t.Errorf("seed %d: pods are worth %v, but can be had for %v", seed, w.Total, p.Stats.HourlyCost)
		}
		edited, _ := withoutNodes(s, all)
		if err := validate.Plan(edited, p); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
