package consolidate

import (
	"cmp"
	"maps"
	"slices"
)

const (
	// everyPrefix is up to how many candidates each number of doomed nodes is tried, fewNodes up to how many some are. With more of
	// them, what prices say of the whole fleet is right for most of it, and what is not is left to the next pass.
	everyPrefix = 8
	fewNodes    = 250
	// alikeSavings is the share of the best up to which less to disturb is better.
	alikeSavings = 0.99
)

// attempt is what came of one choice of doomed nodes.
type attempt struct {
	nodes      []node // as the search has left them, in its order
	moves      []*move
	overBudget bool
	rejected   map[*node]*move
	several    *move
	// value is what is saved, less what it costs to boot what is launched if that is needed for no longer than young.
	value float64
	cost  float64
}

// attempts searches with one choice of doomed nodes after the other, and leaves the search as the best has left it.
func (x *search) attempts() {
	budget, devices := maps.Clone(x.budget), x.devices
	start := x.result.OverBudget
	var all []*attempt
	for _, doomed := range x.choices() {
		if len(all) > 0 && x.spent() {
			break
		}
		x.p.ReleaseTo(x.base)
		x.moves, x.devices, x.budget = nil, devices, maps.Clone(budget)
		x.rejected, x.several = map[*node]*move{}, nil
		for _, n := range x.nodes {
			*n = node{Candidate: n.Candidate, worth: n.worth, room: n.room, examined: n.examined}
		}
		x.result.OverBudget = start
		x.retail(only(x.interleaved(), func(n *node) bool { return slices.Contains(x.st.First, n.Pool.Name) }))
		x.wholesale(x.affordable(doomed))
		x.retail(x.interleaved())
		all = append(all, x.outcome())
	}
	best := slices.MaxFunc(all, func(a, b *attempt) int { return cmp.Compare(a.value, b.value) })
	for _, a := range all {
		if a.value >= alikeSavings*best.value && a.cost < best.cost {
			best = a
		}
	}
	x.moves, x.result.OverBudget = best.moves, best.overBudget
	x.rejected, x.several = best.rejected, best.several
	for i, n := range x.nodes {
		examined := n.examined
		*n = best.nodes[i]
		n.examined = examined
	}
}

// outcome is the search as it stands.
func (x *search) outcome() *attempt {
	a := &attempt{moves: x.moves, overBudget: x.result.OverBudget, rejected: x.rejected, several: x.several}
	for _, n := range x.nodes {
		a.nodes = append(a.nodes, *n)
	}
	for _, m := range x.moves {
		a.value += m.savings - m.plan.Stats.HourlyCost*bootTime.Hours()/young.Hours()
		a.cost += m.cost()
	}
	return a
}

// choices are sets of nodes to be doomed. What prices say comes first. In small fleets one node more or less matters, so
// others are tried as well: none, all, and those with most to save.
func (x *search) choices() [][]*node {
	out := [][]*node{x.doomed()}
	n := len(x.nodes)
	if n > fewNodes {
		return out
	}
	order := slices.Clone(x.nodes)
	slices.SortStableFunc(order, func(a, b *node) int { return cmp.Compare(b.merit(), a.merit()) })
	sizes := []int{0, n / 4, n / 2, 3 * n / 4, n}
	if n <= everyPrefix {
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
