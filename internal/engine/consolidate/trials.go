package consolidate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

const (
	// Up to exhaustiveFleet candidates, every size of the removal set is tried; up to smallFleet, five sizes are. In
	// larger fleets one node more or less hardly changes the total: the removal set by dual prices is right for most
	// of it, and the next pass corrects the rest. As a trial costs about one simulation per candidate, the bounds
	// also keep a pass affordable.
	exhaustiveFleet = 8
	smallFleet      = 250
	// savingsTolerance is the share of the best trial's savings from which a trial with less disruption is preferred:
	// the last percent is not worth moving more pods.
	savingsTolerance = 0.99
)

// trial is the result of the search with one removal set.
type trial struct {
	nodes         []node // as the search left them, in its order
	moves         []*move
	overBudget    bool
	rejected      map[*node]*move
	rejectedMulti *move
	// value holds what is saved in $/h, less the cost of booting the launches, spread over maxAssumedAge.
	value          float64
	disruptionCost float64
}

// runTrials is a multi-start local search: it searches with one removal set after another, and keeps the result of
// the best trial. Each trial starts from the same state, in which only the pending pods are placed. The cost is that
// of one search times the number of removal sets, which is 1 for fleets above smallFleet.
func (x *search) runTrials() {
	budget, devices := maps.Clone(x.budget), x.allocatedDevices
	start := x.result.OverBudget
	var all []*trial
	for _, removal := range x.removalSets() {
		if len(all) > 0 && x.limitReached(Multi) {
			break
		}
		x.problem.RevertTo(x.pendingApplied)
		x.moves, x.allocatedDevices, x.budget = nil, devices, maps.Clone(budget)
		x.rejected, x.rejectedMulti = map[*node]*move{}, nil
		for _, n := range x.nodes {
			*n = node{Candidate: n.Candidate, podValue: n.podValue, freeValue: n.freeValue, examined: n.examined}
		}
		x.result.OverBudget = start
		x.singleNode(filtered(x.roundRobin(), func(n *node) bool { return slices.Contains(x.settings.PoolsFirst, n.Pool.Name) }))
		x.multiNode(x.withinBudgets(removal))
		x.singleNode(x.roundRobin())
		all = append(all, x.trial())
	}
	best := slices.MaxFunc(all, func(a, b *trial) int { return cmp.Compare(a.value, b.value) })
	for _, a := range all {
		if a.value >= savingsTolerance*best.value && a.disruptionCost < best.disruptionCost {
			best = a
		}
	}
	x.moves, x.result.OverBudget = best.moves, best.overBudget
	x.rejected, x.rejectedMulti = best.rejected, best.rejectedMulti
	for i, n := range x.nodes {
		examined := n.examined
		*n = best.nodes[i]
		n.examined = examined
	}
}

// trial is the state of the search as a result.
func (x *search) trial() *trial {
	a := &trial{moves: x.moves, overBudget: x.result.OverBudget, rejected: x.rejected, rejectedMulti: x.rejectedMulti}
	for _, n := range x.nodes {
		a.nodes = append(a.nodes, *n)
	}
	for _, m := range x.moves {
		a.value += m.savings - m.plan.Stats.HourlyCost*bootTime.Hours()/maxAssumedAge.Hours()
		a.disruptionCost += m.disruptionCost()
	}
	return a
}

// removalSets are the removal sets to try. The one by dual prices comes first. In small fleets one node more or less
// matters, so other sets are tried as well: prefixes of the candidates in the order of their reduced costs, from none
// to all.
func (x *search) removalSets() [][]*node {
	out := [][]*node{x.removalSet()}
	n := len(x.nodes)
	if n > smallFleet {
		return out
	}
	order := slices.Clone(x.nodes)
	slices.SortStableFunc(order, func(a, b *node) int {
		return cmp.Or(disrupt.ByMaintenance(a.Candidate, b.Candidate), cmp.Compare(b.reducedCost(), a.reducedCost()))
	})
	sizes := []int{0, n / 4, n / 2, 3 * n / 4, n}
	if n <= exhaustiveFleet {
		sizes = sizes[:0]
		for k := range n + 1 {
			sizes = append(sizes, k)
		}
	}
	for _, k := range slices.Compact(sizes) {
		out = append(out, order[:k])
	}
	return out
}
