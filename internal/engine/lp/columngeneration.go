package lp

import "math"

// effort bounds one run of column generation.
type effort struct {
	// rounds bounds how often patterns are added, gap is the relative distance to the optimum at which it stops.
	rounds int
	gap    float64
	// minFill is the share of its price that an offering must have held at the last solve to be looked at again.
	minFill float64
	// resolveBelow is the share of the last solve's value below which the rest is solved again.
	resolveBelow float64
}

// The rest of a queue gets the full effort where it falls into several demand classes, with few pods in each. The gap
// of fullEffort, 0.3 %, is well below the ratio at which plans count as equal, so that the bound does not decide between
// plans.
var (
	fullEffort  = effort{rounds: 16, gap: 0.003, minFill: 0, resolveBelow: 0.7}
	quickEffort = effort{rounds: 6, gap: 0.01, minFill: 0.9, resolveBelow: 0.6}
)

const (
	// smoothing is the weight of the stability center in the prices at which patterns are searched. At 0 these would be
	// the master's prices, which oscillate; near 1 the search would hardly move. A little over one half keeps half of
	// the master's step.
	smoothing = 0.6
	// nearlyWorthIt is the share of its price that an offering must hold at smoothed prices to get a pattern at the
	// master's own prices too.
	nearlyWorthIt = 0.97
	// improves is how much more than its price a pattern must be worth to join the master: above the rounding error of
	// the pricing LP.
	improves = 1 + 1e-6
	// rounding keeps dual-feasible prices below the price of the node, whatever the rounding of their sum.
	rounding = 1e-9
)

// resolveEffort is the effort for solving the program again.
func (p *Program) resolveEffort() effort {
	if len(p.classes) > 1 {
		return fullEffort
	}
	return quickEffort
}

// generateColumns computes dual prices that make the buckets' demand worth as much as possible, by column generation
// (Gilmore and Gomory 1961) with dual smoothing (Wentges 1997).
//
// Invariants: feasibleDuals are dual-feasible after every round, so every round yields a valid lower bound and any of
// them may be the last. stabilityCenter has the bucket prices of the best bound, bestFeasible the duals that prove it.
// The master's value is an upper bound on the relaxation, so the two together measure the gap.
//
// Cost: rounds times active offerings times one pricing LP, plus at most maxPivots pivots per round.
func (p *Program) generateColumns(e effort) {
	if len(p.buckets) == 0 {
		for k := range p.columns {
			p.spreadPriceEvenly(&p.columns[k])
		}
		return
	}
	p.start(e)
	best := -1.0
	// Patterns are searched at try, between the stability center and the master's prices. At the master's prices alone
	// they would come one after the other, each barely better than the last.
	try := make([]float64, len(p.buckets))
	for range e.rounds {
		p.master.optimize()
		// Lower and upper bound meet: further patterns cannot improve the prices by more than the gap.
		if best >= p.master.clampPrices()*(1-e.gap) {
			break
		}
		copy(try, p.master.price)
		if best >= 0 {
			for k, y := range p.master.price {
				try[k] = smoothing*p.stabilityCenter[k] + (1-smoothing)*y
			}
			p.addMispriced()
		}
		for _, c := range p.active {
			p.addPattern(c, try)
			p.makeFeasible(c)
		}
		// The smoothed prices improve the bound: a serious step of the stabilization. Otherwise it is a null step,
		// which only adds patterns.
		if p.feasiblePrices(try) > best {
			best = p.master.valueAt(try)
			p.stabilityCenter, try = try, p.stabilityCenter
			for _, c := range p.active {
				c.bestFeasible = append(c.bestFeasible[:0], c.feasibleDuals...)
			}
		}
	}
	for _, c := range p.active {
		p.solvePricing(c, p.stabilityCenter)
		if best >= 0 { // otherwise the last duals, which are feasible, are the best
			c.feasibleDuals = append(c.feasibleDuals[:0], c.bestFeasible...)
		}
	}
}

// start prepares the master LP for the buckets' demand, and lists the offerings to look at.
func (p *Program) start(e effort) {
	p.master.demand = p.master.demand[:0]
	for k := range p.buckets {
		p.master.demand = append(p.master.demand, p.buckets[k].demand)
	}
	p.master.reset()
	p.active = p.active[:0]
	for k := range p.columns {
		if c := &p.columns[k]; c.packedValue >= e.minFill*c.price {
			p.active = append(p.active, c)
		}
	}
	p.stabilityCenter = zeroed(p.stabilityCenter, len(p.buckets))
}

// addMispriced adds patterns at the master's own prices, or smoothing could hide them (a misprice). Only offerings that
// were nearly worth their price often have one.
func (p *Program) addMispriced() {
	for _, c := range p.active {
		if c.packedValue > nearlyWorthIt*c.price {
			p.addPattern(c, p.master.price)
		}
	}
}

// addPattern solves the pricing LP of the offering, and adds its pattern if it is worth more than it costs.
func (p *Program) addPattern(c *column, price []float64) {
	if p.solvePricing(c, price) > c.price*improves {
		p.master.patterns = append(p.master.patterns, p.pattern(c))
	}
}

// feasiblePrices sets each bucket's price to the least that it costs anywhere at feasibleDuals, and returns the value
// of all demand at these prices: the Lagrangian bound of the round.
func (p *Program) feasiblePrices(price []float64) float64 {
	total := 0.0
	for k := range p.buckets {
		b := &p.buckets[k]
		least := math.Inf(1)
		for _, i := range p.classes[b.class].usable {
			if c := &p.columns[i]; dot(b.need, c.feasibleDuals) < least && b.usesOnlyAxesOf(c) {
				least = dot(b.need, c.feasibleDuals)
			}
		}
		price[k] = least
		total += least * b.demand
	}
	return total
}

// makeFeasible scales the duals so that the whole node costs its price and no more: then they are dual-feasible.
func (p *Program) makeFeasible(c *column) {
	total := 0.0
	for i, r := range c.room {
		total += float64(r) * c.duals[i]
	}
	if total <= 0 {
		p.spreadPriceEvenly(c)
		return
	}
	for i := range c.feasibleDuals {
		c.feasibleDuals[i] = c.duals[i] * (c.price / total) * (1 - rounding)
	}
}

// spreadPriceEvenly divides the offering's price evenly among the axes that it has. Such prices are dual-feasible too.
func (p *Program) spreadPriceEvenly(c *column) {
	c.packedValue = 0
	for _, i := range p.axesInUse {
		c.duals[i], c.feasibleDuals[i] = 0, 0
		if c.room[i] > 0 {
			c.feasibleDuals[i] = c.price / float64(c.room[i]) / float64(len(p.axesInUse)) * (1 - rounding)
		}
	}
}
