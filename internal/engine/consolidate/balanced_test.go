package consolidate_test

import (
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestBalancedRules(t *testing.T) {
	even := consolidate.Total{Cost: 100, Disruption: 100}
	for _, tt := range []struct {
		name                string
		total               consolidate.Total
		savings, disruption float64
		score               float64
		approved            bool
	}{
		{"a fifth saved for a twentieth disturbed", even, 20, 5, 4, true},
		{"equal shares", even, 10, 10, 1, true},
		{"exactly half", even, 5, 10, 0.5, true},
		{"less than half", even, 4.9, 10, 0.49, false},
		{"nothing saved", even, 0, 10, 0, false},
		{"less than nothing saved", even, -5, 10, 0, false},
		{"a pool that costs nothing", consolidate.Total{Disruption: 100}, 5, 10, 0, false},
		{"a pool without totals", consolidate.Total{}, 5, 10, 0, false},
		{"nothing disturbed", even, 1, 0, math.Inf(1), true},
		{"all of a pool", even, 100, 100, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := consolidate.Score(tt.total, tt.savings, tt.disruption)
			if math.Abs(v.Score-tt.score) > 1e-9 && !(math.IsInf(tt.score, 1) && math.IsInf(v.Score, 1)) || v.Approved != tt.approved {
				t.Errorf("score %v, approved %v; want %v, %v", v.Score, v.Approved, tt.score, tt.approved)
			}
		})
	}
	balanced := func(np *karpv1.NodePool) { np.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationBalanced }
	t.Run("the only node of a pool", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)}, balanced)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		s.Nodes = append(s.Nodes, Node("other", "", func(n *snapshot.Node) { n.Claim, n.Pool = "", "" }))
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if v := r.Commands[0].Verdicts; len(v) != 1 || v[0].Score != 1 || !v[0].Approved {
			t.Errorf("verdicts are %+v, want a score of 1", v)
		}
	})
	t.Run("a price that is not a number counts as 0", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0)}, balanced)
		for _, name := range []string{"a", "b"} {
			add(s, 0, name, "xl", onDemand, one("pod-"+name, "1"))
		}
		list := candidates(s)
		list[0].Price = math.NaN()
		totals := consolidate.PoolTotals(s, list, nil)
		if got := totals["general"]; got != (consolidate.Total{Cost: 0.2, Disruption: 4}) {
			t.Errorf("totals are %+v, want a cost of 0.2 and a disruption of 4", got)
		}
		r := consolidate.Find(
			consolidate.Input{
				Problem:    consolidate.Compile(s),
				Snapshot:   s,
				Candidates: list,
				Budgets:    disrupt.Allowances(s, karpv1.DisruptionUnderutilized),
				Totals:     totals,
			},
			defaults(),
		)
		wantRemoved(t, r, "b")
	})
	t.Run("an unavailable offering keeps its price", func(t *testing.T) {
		it := priced("xl", 4, 0.2, 0)
		for i := range it.Offerings {
			it.Offerings[i].Available = false
		}
		s := world([]*catalog.InstanceType{it, priced("m", 2, 0.1, 0)}, balanced)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		r := find(s, defaults())
		wantRemoved(t, r, "node")
		if c := r.Commands[0]; math.Abs(c.Savings-0.1) > 1e-9 || c.Verdicts[0].Score != 0.5 {
			t.Errorf("it saves %v $/h at a score of %v, want 0.1 and 0.5", c.Savings, c.Verdicts[0].Score)
		}
	})
	t.Run("a spot price does not count if only on-demand is launched", func(t *testing.T) {
		s := world(
			[]*catalog.InstanceType{priced("m", 2, 0.15, 0.01), priced("xl", 4, 0.2, 0.02)},
			balanced,
			Require(Capacity, corev1.NodeSelectorOpIn, onDemand),
		)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		r := find(s, defaults())
		wantNothing(t, r, "node", "It would disturb more than it saves")
		if len(r.Rejected) != 1 || r.Rejected[0].ConsolidationType != consolidate.Single || len(r.Rejected[0].Plan.Launches) != 1 {
			t.Fatalf("rejected are %+v, want the replacement of one node", r.Rejected)
		}
		v := r.Rejected[0].Verdicts[0]
		if math.Abs(v.Score-0.25) > 1e-9 || v.Approved || math.Abs(v.Saved-0.05) > 1e-9 || v.Disturbed != 2 || v.PoolCost != 0.2 ||
			v.PoolDisruption != 2 {
			t.Errorf("the verdict is %+v", v)
		}
		s.Pools[0].NodePool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
		r = find(s, defaults())
		wantRemoved(t, r, "node")
		if math.Abs(r.Commands[0].Savings-0.05) > 1e-9 {
			t.Errorf("it saves %v $/h, want 0.05", r.Commands[0].Savings)
		}
	})
	t.Run("each pool must approve", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)}, balanced)
		s.Pools = append(s.Pools, Pool("other", s.Pools[0].InstanceTypes, balanced))
		unbounded(s)
		add(s, 0, "a", "xl", onDemand, one("pod-a", "1"))
		add(s, 1, "b", "xl", onDemand, one("pod-b", "1"))
		list := candidates(s)
		totals := consolidate.Totals{"general": {Cost: 0.2, Disruption: 2}, "other": {Cost: 100, Disruption: 2}}
		r := consolidate.Find(
			consolidate.Input{
				Problem:    consolidate.Compile(s),
				Snapshot:   s,
				Candidates: list,
				Budgets:    disrupt.Allowances(s, karpv1.DisruptionUnderutilized),
				Totals:     totals,
			},
			defaults(),
		)
		if slices.Contains(removedNames(r), "b") {
			t.Errorf("found %s, want node b to stay: its pool rejects", describe(r))
		}
	})
	t.Run("each pool gets its part of the savings", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("xl", 4, 0.2, 0), priced("2xl", 8, 0.4, 0)}, balanced)
		s.Pools = append(s.Pools, Pool("other", s.Pools[0].InstanceTypes, balanced))
		unbounded(s)
		add(s, 0, "a", "xl", onDemand, one("pod-a", "1"))
		add(s, 1, "b", "2xl", onDemand, one("pod-b", "1"))
		s.Nodes = append(s.Nodes, Node("room", "", func(n *snapshot.Node) { n.Claim, n.Pool = "", "" }))
		list := candidates(s)
		totals := consolidate.Totals{"general": {Cost: 1, Disruption: 10}, "other": {Cost: 1, Disruption: 10}}
		r := consolidate.Find(
			consolidate.Input{
				Problem:    consolidate.Compile(s),
				Snapshot:   s,
				Candidates: list,
				Budgets:    disrupt.Allowances(s, karpv1.DisruptionUnderutilized),
				Totals:     totals,
			},
			defaults(),
		)
		wantRemoved(t, r, "a", "b")
		for _, v := range r.Commands[0].Verdicts {
			if want := map[string]float64{"general": 0.2, "other": 0.4}[v.Pool.Name]; len(r.Commands) != 1 || math.Abs(v.Savings-want) > 1e-9 {
				t.Errorf("pool %s has %v of its cost saved by one of %d commands, want %v by one", v.Pool.Name, v.Savings, len(r.Commands), want)
			}
		}
	})
	t.Run("a rejected move is reported once, of several nodes the last one", func(t *testing.T) {
		for _, tt := range []struct {
			of   *catalog.InstanceType
			want []int // how many nodes each would have removed
		}{
			{priced("m", 3, 0.18, 0), []int{1, 1}},
			{priced("2m", 8, 0.3, 0), []int{2}},
		} {
			s := world([]*catalog.InstanceType{tt.of, priced("xl", 4, 0.2, 0)}, balanced)
			for _, name := range []string{"a", "b"} {
				add(s, 0, name, "xl", onDemand, one("pod-"+name, "2500m"))
			}
			r := find(unbounded(s), defaults())
			var got []int
			for _, c := range r.Rejected {
				got = append(got, len(c.Candidates))
			}
			if len(r.Commands) > 0 || !slices.Equal(got, tt.want) {
				t.Errorf("%s: found %s, rejected sets of %v nodes, want %v", tt.of.Name, describe(r), got, tt.want)
			}
		}
	})
	t.Run("a budget of 0", func(t *testing.T) {
		s := world([]*catalog.InstanceType{priced("m", 2, 0.1, 0), priced("xl", 4, 0.2, 0)}, balanced)
		add(s, 0, "node", "xl", onDemand, one("pod", "1"))
		r := find(budget(s, "0%"), defaults())
		if len(r.Commands) > 0 || !r.OverBudget {
			t.Errorf("found %s, over budget %v; want nothing, for the budget", describe(r), r.OverBudget)
		}
	})
}
