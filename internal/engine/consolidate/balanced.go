package consolidate

import (
	"math"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Threshold is the lowest score that a pool of policy Balanced approves: a move's share of the pool's disruption cost
// may be at most Weight times its share of the pool's price. Karpenter publishes both in events, as k and threshold.
const (
	Weight    = 2.0
	Threshold = 1 / Weight
)

// Totals are the totals that moves are measured against, by the names of pools.
type Totals map[string]Total

// Total describes what a pool costs in $/h, and what it would cost to disrupt all of it.
type Total struct{ Cost, Disruption float64 }

// PoolTotals adds up the pools that have candidates. Tracked are the known costs of whole pools, by name; they
// replace the sum over candidates. Call it before any disruption method filters the candidates.
func PoolTotals(s *snapshot.Snapshot, candidates []*disrupt.Candidate, tracked map[string]float64) Totals {
	out := Totals{}
	exact := map[int]float64{}
	for _, c := range candidates {
		t := out[c.Pool.Name]
		if !math.IsNaN(c.Price) {
			t.Cost += c.Price
		}
		out[c.Pool.Name] = t
		exact[c.Index] = c.Cost
	}
	for name, cost := range tracked {
		if t, ok := out[name]; ok && cost > 0 {
			t.Cost = cost
			out[name] = t
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		t, ok := out[n.Pool]
		if !ok {
			continue
		}
		cost, known := exact[i]
		if !known {
			cost = 1
			for _, p := range n.Pods {
				if !snapshot.DaemonOwned(p) {
					cost += max(0, snapshot.EvictionCost(p))
				}
			}
		}
		t.Disruption += cost
		out[n.Pool] = t
	}
	return out
}

// Score compares what a move saves of a pool's total, in $/h, with what it disrupts.
func Score(t Total, savings, disruption float64) disrupt.Verdict {
	v := disrupt.Verdict{Saved: savings, Disturbed: disruption, PoolCost: t.Cost, PoolDisruption: t.Disruption}
	if !(t.Cost > 0) || !(t.Disruption > 0) {
		return v
	}
	v.Savings, v.Disruption = savings/t.Cost, disruption/t.Disruption
	switch {
	case !(v.Savings > 0):
	case v.Disruption == 0:
		v.Score = math.Inf(1)
	default:
		v.Score = v.Savings / v.Disruption
	}
	v.Approved = v.Score >= Threshold
	return v
}

// verdicts returns those of the nodes' pools, in the order of the nodes; pools of other policies approve without a score.
// A pool's part of the savings is its part of the price of the removed nodes.
func (x *search) verdicts(removed []*node, savings float64) (list []disrupt.Verdict, approved bool) {
	price, cost := map[*karpv1.NodePool]float64{}, map[*karpv1.NodePool]float64{}
	var pools []*karpv1.NodePool
	total := 0.0
	for _, n := range removed {
		if _, seen := cost[n.Pool]; !seen {
			pools = append(pools, n.Pool)
		}
		price[n.Pool] += n.Price
		cost[n.Pool] += n.Cost
		total += n.Price
	}
	approved = true
	for _, pool := range pools {
		if pool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationBalanced {
			continue
		}
		share := savings
		if len(pools) > 1 && total > 0 {
			share *= price[pool] / total
		}
		v := Score(x.totals[pool.Name], share, cost[pool])
		v.Pool = pool
		list = append(list, v)
		approved = approved && v.Approved
	}
	return list, approved
}
