package schedule

import "cmp"

// similarCost is the ratio up to which two plans cost the same; the one with fewer nodes is better. Every node has
// costs that prices do not show: daemons, IP addresses, upgrades, API load. 1 % is little against the swings of spot
// prices.
const similarCost = 1.01

// nearlyEqual is the share of a cost that is taken for an error of floating point: sums of equal prices differ by their
// order.
const nearlyEqual = 1e-9

// merit is what decides between plans of the same pods.
type merit struct {
	rejected int // pods that the plan leaves
	dropped  int // preferences that it drops
	// cost is that of new nodes in $/h; where preferences are weighed, with what the dropped ones are worth.
	cost  float64
	nodes int // to launch
	plain bool
}

// byPrice is the merit of a plan whatever preferences it drops.
func byPrice(p *Plan) merit {
	return merit{rejected: len(p.Rejected), cost: p.Cost(), nodes: len(p.Launches)}
}

// byObjective is the merit of a plan with the preferences that it drops, by what they are worth.
func byObjective(p *Plan) merit {
	m := byPrice(p)
	m.cost += p.DroppedWorth
	return m
}

// fewer reports whether the plan leaves fewer pods than another.
func (m merit) fewer(than merit) bool { return m.rejected < than.rejected }

// noWorse reports whether the plan leaves fewer pods than another, or equally many and costs no more.
func (m merit) noWorse(than merit) bool {
	return m.fewer(than) || m.rejected == than.rejected && m.cost <= than.cost*(1+nearlyEqual)
}

// better reports whether the plan leaves fewer pods than another, or equally many and costs less. Of nearly equal ones
// neither is better, so that rounding decides nothing.
func (m merit) better(than merit) bool {
	return m.fewer(than) || m.rejected == than.rejected && m.cost < than.cost*(1-nearlyEqual)
}

// compare orders plans by the pods that they leave, then the preferences that they drop, then cost, then nodes.
func (m merit) compare(other merit) int {
	return cmp.Or(cmp.Compare(m.rejected, other.rejected), cmp.Compare(m.dropped, other.dropped), cmp.Compare(m.cost, other.cost),
		cmp.Compare(m.nodes, other.nodes))
}

// placesLike reports whether the plan leaves as many pods and drops as many preferences as another.
func (m merit) placesLike(other merit) bool {
	return m.rejected == other.rejected && m.dropped == other.dropped
}
