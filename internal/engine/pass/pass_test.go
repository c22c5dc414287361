package pass_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const all = pass.Empty | pass.Drift | pass.Savings

var settings = pass.Settings{
	Consolidation: consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps}, MaxDrift: 10, MaxDriftRejections: 5,
}

// up is a node that consolidation may remove.
func up(name string, pods ...*corev1.Pod) snapshot.Node {
	n := DriftedNode(name, "p", 0, pods...)
	n.DriftedAt = time.Time{}
	n.Consolidatable = true
	return n
}

func pod(name, cpu string) *corev1.Pod { return Pod(name, Requests("cpu", cpu)) }

func world(budget string, nodes ...snapshot.Node) *snapshot.Snapshot {
	s := World([]snapshot.Pool{Pool("p", Types(), func(np *karpv1.NodePool) {
		np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: budget}}
		np.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
	})})
	s.Nodes = nodes
	return s
}

// decide is pass.Decide without the next Memory.
func decide(in pass.Input) pass.Decisions {
	out, _ := pass.Decide(in)
	return out
}

// text has a line for each command: its reason, the nodes that go, what is launched, where pods go.
func text(d pass.Decisions) string {
	var out []string
	for i := range d.Start {
		c := &d.Start[i]
		line := string(c.Reason)
		for _, n := range c.Candidates {
			line += " " + n.Node.Name
		}
		line += fmt.Sprintf(" launches %d", len(c.Plan.Launches))
		for _, pl := range c.Plan.Placements {
			line += fmt.Sprintf(" %s takes %d", pl.Node, len(pl.Pods))
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    *snapshot.Snapshot
		work pass.Work
		want string
	}{
		{
			"empty nodes come first, then drifted ones, each once",
			world("100%", DriftedNode("both", "p", 2), DriftedNode("drifted", "p", 1, pod("a", "600m")), up("empty")),
			all, "Empty both launches 0; Empty empty launches 0; Drifted drifted launches 1",
		},
		{
			"a budget of one lets one drifted node go, the one that drifted first",
			world("1", DriftedNode("young", "p", 1, pod("a", "600m")), DriftedNode("old", "p", 9, pod("b", "600m"))),
			pass.Drift, "Drifted old launches 1",
		},
		{
			"two drifted nodes do not count on the same room",
			world("100%", DriftedNode("one", "p", 2, pod("a", "600m")), DriftedNode("two", "p", 1, pod("b", "600m")), up("room", pod("c", "300m"))),
			pass.Drift, "Drifted one launches 0 room takes 1; Drifted two launches 1",
		},
		{
			"work that is not asked for is not done",
			world("100%", DriftedNode("both", "p", 2), up("empty")), pass.Savings, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := text(decide(pass.Input{Snapshot: tt.s, Work: tt.work, Settings: settings})); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A node that a plan for pending pods fills stays, and Decide states why.
func TestNodesThatTakePodsStay(t *testing.T) {
	s := world("100%", up("empty"))
	s.Pods = []*corev1.Pod{pod("pending", "500m")}
	plan := schedule.Solve(s, schedule.DefaultBudget())
	if len(plan.Placements) != 1 {
		t.Fatalf("the plan places pods on %d nodes, want 1", len(plan.Placements))
	}
	d := decide(pass.Input{Snapshot: s, Plan: &plan, Work: all, Settings: settings})
	if len(d.Start) != 0 || len(d.Stay) != 1 || d.Stay[0].Message != "node is nominated for a pending pod" {
		t.Errorf("%s; stay %+v", text(d), d.Stay)
	}
	if !s.Nodes[0].NominatedUntil.IsZero() {
		t.Error("Decide changed the Snapshot")
	}
}

// A Problem of the caller is as it was, so that two calls decide the same.
func TestTheProblemOfTheCallerIsUnchanged(t *testing.T) {
	s := world("100%", DriftedNode("one", "p", 2, pod("a", "600m")), DriftedNode("two", "p", 1, pod("b", "600m")), up("room", pod("c", "300m")))
	in := pass.Input{Snapshot: s, Problem: consolidate.Compile(s), Work: all, Settings: settings}
	first, second := text(decide(in)), text(decide(in))
	if first != second || first == "" || in.Problem.AppliedPlans() != 0 {
		t.Errorf("first %s\nthen  %s\n%d plans are applied", first, second, in.Problem.AppliedPlans())
	}
}
