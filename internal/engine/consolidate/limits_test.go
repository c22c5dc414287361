package consolidate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestSpotRules(t *testing.T) {
	on := consolidate.Settings{SpotToSpot: true}
	single := func(list []*catalog.InstanceType, edit ...func(*karpv1.NodePool)) *snapshot.Snapshot {
		s := world(list, edit...)
		add(s, 0, "node", "dear", spot, one("pod", "1"))
		return s
	}
	t.Run("spot and on-demand nodes may be merged without the spot-to-spot rules", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.09, 0.1), priced("xl", 4, 0.4, 0.15)})
		add(s, 0, "a", "m", spot, one("pod-a", "1200m"))
		add(s, 0, "b", "m", spot, one("pod-b", "1200m"))
		add(s, 0, "c", "m", onDemand, one("pod-c", "1200m"))
		r := find(s, defaults())
		wantRemoved(t, r, "a", "b", "c")
		if got := launchedTypes(r); len(got) != 1 {
			t.Errorf("launched are %v, want one", got)
		}
	})
	t.Run("spot is not replaced by spot unless SpotToSpotConsolidation is enabled", func(t *testing.T) {
		s := single(spotTypes(20))
		wantNothing(t, find(s, defaults()), "node", "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
		add(s, 0, "other", "dear", spot, one("own", "1"), one("own-2", "1"))
		wantRemoved(t, find(s, defaults()), "node")
	})
	t.Run("one cheaper type is not enough", func(t *testing.T) {
		wantNothing(
			t,
			find(single(spotTypes(1)), on),
			"node",
			"SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate to consolidate, got 1",
		)
	})
	t.Run("a node among the 15 cheapest is not replaced", func(t *testing.T) {
		s := world(spotTypes(30))
		add(s, 0, "node", "t13", spot, one("pod", "1"))
		wantNothing(t, find(s, on), "node", "got 13")
	})
	t.Run("with minValues of 16, the 16 cheapest of 18 types are launched", func(t *testing.T) {
		r := find(single(spotTypes(18), Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists), MinValues(16)), on)
		if got := launchedTypes(r); len(got) != 1 || len(got[0]) != 16 || got[0][0] != "t00" || got[0][15] != "t15" {
			t.Errorf("launched are %v, want t00 to t15", got)
		}
	})
	t.Run("with minValues of 10, the 15 cheapest types are launched", func(t *testing.T) {
		r := find(single(spotTypes(18), Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists), MinValues(10)), on)
		if got := launchedTypes(r); len(got) != 1 || len(got[0]) != 15 || got[0][14] != "t14" {
			t.Errorf("launched are %v, want t00 to t14", got)
		}
	})
	t.Run("the cheapest type is found wherever it is listed", func(t *testing.T) {
		list := append(spotTypes(20), priced("zz-cheapest", 4, 0, 0.01))
		r := find(single(list), on)
		if got := launchedTypes(r); len(got) != 1 || got[0][0] != "zz-cheapest" || len(got[0]) != 15 {
			t.Errorf("launched are %v, want zz-cheapest first of 15", got)
		}
	})
	t.Run("several spot nodes may be replaced by one of fewer than 15 types", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0, 0.1), priced("xl", 4, 0, 0.15)})
		add(s, 0, "a", "m", spot, one("pod-a", "1500m"))
		add(s, 0, "b", "m", spot, one("pod-b", "1500m"))
		r := find(s, on)
		wantRemoved(t, r, "a", "b")
		if got := launchedTypes(r); len(got) != 1 || !slices.Equal(got[0], []string{"xl"}) {
			t.Errorf("launched are %v, want one xl", got)
		}
		wantNothing(t, find(s, defaults()), "a", "SpotToSpotConsolidation is disabled")
	})
}

func TestSearchLimits(t *testing.T) {
	s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
	s.Pools = append(s.Pools, Pool("other", s.Pools[0].InstanceTypes))
	unbounded(s)
	for k := range 3 {
		add(s, 0, fmt.Sprintf("a%d", k), "xl", onDemand, one(fmt.Sprintf("pod-a%d", k), "3"))
		add(s, 1, fmt.Sprintf("b%d", k), "xl", onDemand, one(fmt.Sprintf("pod-b%d", k), "3"))
	}
	t.Run("no simulation is allowed", func(t *testing.T) {
		r := find(s, consolidate.Settings{MaxSteps: -1})
		if len(r.Commands) > 0 || r.TimedOut != consolidate.Multi || r.Examined != 0 ||
			!slices.Equal(r.Unexamined, []string{"general", "other"}) {
			t.Errorf("result is %+v, want nothing but that it timed out", r)
		}
	})
	t.Run("pools that were not examined go first", func(t *testing.T) {
		// One simulation places pending pods; the next removes the first candidate.
		limit := find(s, consolidate.Settings{MaxSteps: 1}).Steps + 1
		r := find(s, consolidate.Settings{MaxSteps: limit})
		if r.TimedOut != consolidate.Single || r.Simulations != 2 || r.Examined != 1 || len(r.Unexamined) != 1 {
			t.Fatalf("%d are examined, not examined are %v; want one, and the other's pool", r.Examined, r.Unexamined)
		}
		again := find(s, consolidate.Settings{MaxSteps: limit, PoolsFirst: r.Unexamined})
		if len(again.Unexamined) != 1 || again.Unexamined[0] == r.Unexamined[0] {
			t.Errorf("not examined are %v, want the other pool", again.Unexamined)
		}
		all := find(s, defaults())
		if all.TimedOut != "" || len(all.Unexamined) > 0 || all.Examined != 6 {
			t.Errorf("without a limit, %d are examined and %v are not", all.Examined, all.Unexamined)
		}
		same := find(s, consolidate.Settings{MaxSteps: all.Steps + 1})
		if same.TimedOut != "" || same.Steps != all.Steps || len(same.Commands) != len(all.Commands) {
			t.Errorf("a limit that is not reached changes the result: %d steps, %d commands", same.Steps, len(same.Commands))
		}
	})
	t.Run("the highest price per pod goes first", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
		for _, pods := range []int{20, 1, 5} {
			name := fmt.Sprintf("pods-%02d", pods)
			n := add(s, 0, name, "xl", onDemand)
			for k := range pods {
				n.Pods = append(n.Pods, Bound(one(fmt.Sprintf("%s-%d", name, k), "10m"), name))
			}
		}
		add(s, 0, "zz-room", "xl", onDemand, Pods(60, "own", Requests("cpu", "10m"))...)
		var order []string
		for range 3 {
			r := find(budget(s, "1"), defaults())
			order = append(order, removedNames(r)...)
			s = carryOut(s, r.Commands, time.Hour)
		}
		if want := []string{"pods-01", "pods-05", "pods-20"}; !slices.Equal(order, want) {
			t.Errorf("nodes are removed in the order %v, want %v", order, want)
		}
	})
}

// A search can be interrupted before each of its simulations. The Problem is unchanged then, and another search finds everything.
func TestSearchIsInterrupted(t *testing.T) {
	s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)})
	unbounded(s)
	for k := range 4 {
		add(s, 0, fmt.Sprintf("node-%d", k), "xl", onDemand, one(fmt.Sprintf("pod-%d", k), "1"))
	}
	in, want := input(s), find(s, defaults())
	if len(want.Commands) == 0 || want.Interrupted {
		t.Fatalf("without an interruption: %+v", want)
	}
	interruptions := 0
	for calls := range 100 {
		asked := 0
		in.Interrupt = func() bool {
			asked++
			return asked > calls
		}
		r := consolidate.Find(in, defaults())
		if !r.Interrupted {
			if !slices.Equal(removedNames(r), removedNames(want)) {
				t.Errorf("%d interruptions later, removed are %v, want %v", interruptions, removedNames(r), removedNames(want))
			}
			break
		}
		interruptions++
		if len(r.Commands)+len(r.Unconsolidatable)+len(r.Rejected) > 0 || asked != calls+1 {
			t.Errorf("interrupted at call %d: asked %d times, result %+v", calls+1, asked, r)
		}
	}
	if interruptions < want.Simulations || interruptions > 99 {
		t.Errorf("interrupted %d times, and it takes %d simulations", interruptions, want.Simulations)
	}
}

func TestIneligibleNodes(t *testing.T) {
	for _, tt := range []struct {
		why     string
		noEvent bool
		edit    func(s *snapshot.Snapshot)
	}{
		{
			`Instance Type "nowhere" not found`, false,
			func(s *snapshot.Snapshot) { s.Nodes[0].Labels[corev1.LabelInstanceTypeStable] = "nowhere" },
		},
		{`Node does not have label "karpenter.sh/capacity-type"`, false, func(s *snapshot.Snapshot) { delete(s.Nodes[0].Labels, Capacity) }},
		{`Node does not have label "topology.kubernetes.io/zone"`, false, func(s *snapshot.Snapshot) { delete(s.Nodes[0].Labels, Zone) }},
		{`NodePool "general" has consolidation disabled`, false, func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Disruption.ConsolidateAfter = karpv1.Never()
		}},
		{`NodePool "general" has consolidation policy WhenEmpty, but node is not empty`, false, func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty
		}},
		{"Node is empty", true, func(s *snapshot.Snapshot) { s.Nodes[0].Pods = nil }},
		{"Pods came or went too lately", true, func(s *snapshot.Snapshot) { s.Nodes[0].Consolidatable = false }},
		{`NodePool "general" keeps a fixed number of nodes`, true, func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Replicas = new(int64)
			s.Pools = append(s.Pools, Pool("other", s.Pools[0].InstanceTypes))
		}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)})
			add(s, 0, "node", "xl", onDemand, one("pod", "1"))
			tt.edit(s)
			r := find(s, defaults())
			wantNothing(t, r, "node", tt.why)
			if len(r.Unconsolidatable) != 1 || r.Unconsolidatable[0].Reason.Quiet() != tt.noEvent {
				t.Errorf("left are %+v, want one, without event %v", r.Unconsolidatable, tt.noEvent)
			}
		})
	}
}

// In the seconds after an edit of a NodePool its types are not known: that is no fault of its nodes, and no event.
func TestNodesOfAPoolThatIsNotReadyAreNotOfAnUnknownType(t *testing.T) {
	s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)})
	add(s, 0, "node", "xl", onDemand, one("pod", "1"))
	s.Closed = append(s.Closed, s.Pools[0].NodePool)
	s.Pools = []snapshot.Pool{Pool("other", s.Pools[0].InstanceTypes)}
	in := input(s)
	in.Candidates = disrupt.NewView(s).Candidates
	r := consolidate.Find(in, defaults())
	want := `NodePool "general" is not ready, so it can launch no replacement`
	if len(r.Unconsolidatable) != 1 || r.Unconsolidatable[0].Message != want || !r.Unconsolidatable[0].Reason.Quiet() {
		t.Errorf("%+v, want %q without an event", r.Unconsolidatable, want)
	}
}
