package lp

import (
	"cmp"
	"math"
	"slices"
)

// effort bounds one run of column generation.
type effort struct {
	// rounds bounds how often patterns are added, gap is the relative distance to the optimum at which it stops.
	rounds int
	gap    float64
	// resolveBelow is the share of the last solve's value below which the rest is solved again.
	resolveBelow float64
	// keepCenter makes the last stability center the first one: then a solve with a demand that has changed little finishes with
	// the first look at the master LP.
	keepCenter bool
}

// The rest of a queue gets the full effort where it falls into several demand classes, with few pods in each. The gap
// of fullEffort, 0.3 %, is well below the ratio at which plans count as equal, so that the bound does not decide between
// plans.
var (
	fullEffort  = effort{rounds: 16, gap: 0.003, resolveBelow: 0.7, keepCenter: true}
	quickEffort = effort{rounds: 6, gap: 0.01, resolveBelow: 0.6}
)

const (
	// smoothing is the weight of the stability center in the prices at which patterns are searched. At 0 these would be
	// the master's prices, which oscillate; near 1 the search would hardly move. A little over one half keeps half of
	// the master's step.
	smoothing = 0.6
	// nearlyWorthIt is the share of its price that an offering must hold at smoothed prices to get a pattern at the
	// master's own prices too.
	nearlyWorthIt = 0.97
	// improves sets how much more than its price a pattern must be worth to join the master: above the rounding error of
	// the pricing LP.
	improves = 1 + 1e-6
	// maxNewPerBucket limits how many patterns a round adds for each bucket. Without it, every offering adds one: 200,000
	// patterns in plans of several pools, of which the master LP uses some hundred and looks at all. With 8, plans of jobs
	// and volumes cost up to 3 % more on EC2 prices; 16 and 80 cost the same as 24.
	maxNewPerBucket = 24
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
// A solve starts from the last basis of the master LP where it can be kept. With one demand class it has no stability
// center at first: with the last one, dual prices would follow the rest of the queue less closely, which costs 1 % on
// batch jobs at EC2 prices, and a solve takes little time anyway.
//
// Invariants: feasible duals are dual-feasible after every round, so every round yields a valid lower bound and any of
// them may be the last. stabilityCenter has the bucket prices of the best bound, bestFeasible the duals that prove it.
// The master's value is an upper bound on the relaxation, so the two together measure the gap.
//
// Cost: rounds times the frontier times two pricing LPs, plus at most maxPivots pivots per round, plus a pricing LP per
// column.
func (p *Program) generateColumns(e effort) {
	if len(p.buckets) == 0 {
		return
	}
	best, improved := p.start(e), false
	if p.partial {
		best, improved = p.searchPartially(e, best)
	} else {
		best, improved = p.search(p.frontier, e, best)
	}
	if best >= 0 { // otherwise there was no round
		// The duals of the last round belong to a worse bound, unless it was the best.
		for _, c := range p.frontier {
			copy(p.feasible.at(c.index), p.bestFeasible.at(c.index))
		}
	}
	if improved {
		p.adopt()
	}
}

// search adds patterns of the columns in rounds. It returns the best bound on a program of these columns alone, where the
// stability center proves the one given, and whether it is a better one.
func (p *Program) search(columns []*column, e effort, best float64) (_ float64, improved bool) {
	for range e.rounds {
		p.master.optimize()
		// Lower and upper bound meet: further patterns cannot improve the prices by more than the gap.
		if best >= p.master.clampPrices()*(1-e.gap) {
			break
		}
		// Patterns are searched between the stability center and the master's prices. At the master's prices alone they
		// would come one after the other, each barely better than the last.
		copy(p.try, p.master.price)
		if best >= 0 {
			for k, y := range p.master.price {
				// The conversions forbid a fused multiply-add, so that prices are the same on every processor.
				p.try[k] = float64(smoothing*p.stabilityCenter[k]) + float64((1-smoothing)*y)
			}
			p.addPatterns(p.mispriced(columns), p.master.price)
		}
		p.addPatterns(columns, p.try)
		for _, c := range columns {
			p.makeFeasible(c)
		}
		// The smoothed prices improve the bound: a serious step of the stabilization. Otherwise it is a null step,
		// which only adds patterns.
		if bound := p.feasiblePrices(p.try, columns); bound > best {
			best, improved = bound, true
			// An exchange, since feasiblePrices has written the better prices into try, and the next round overwrites it.
			p.stabilityCenter, p.try = p.try, p.stabilityCenter
			for _, c := range columns {
				copy(p.bestFeasible.at(c.index), p.feasible.at(c.index))
			}
		}
	}
	return best, improved
}

// start prepares the master LP for the buckets' demand. It returns the bound that the stability center proves; negative
// if there is none.
func (p *Program) start(e effort) (best float64) {
	p.master.demand = p.master.demand[:0]
	for k := range p.buckets {
		p.master.demand = append(p.master.demand, p.buckets[k].demand)
	}
	again := p.master.restart()
	if !again { // the patterns stay: only the way to the optimum is longer
		p.master.reset()
	}
	if !again || !e.keepCenter {
		return -1
	}
	for _, c := range p.frontier {
		copy(p.bestFeasible.at(c.index), p.feasible.at(c.index))
	}
	// Feasible duals do not depend on demand. So the old center proves a bound for the new one without a round.
	return dot(p.master.demand, p.stabilityCenter)
}

// adopt finds the duals of all offerings at new best prices of buckets: those of beaten ones fit their own proportions,
// although others of the frontier decide the prices.
func (p *Program) adopt() {
	for k := range p.columns {
		c := &p.columns[k]
		c.pricing.solve(p.stabilityCenter, p.amounts, p.direction)
		for n, axis := range p.axesInUse {
			c.duals[axis] = c.pricing.duals[n/4][n%4] / p.scale[axis]
		}
		if c.best != k {
			p.followFrontier(c)
		}
	}
}

// followFrontier gives a beaten column the feasible duals of the better one, scaled so that the whole node costs its
// price. The factor is at least one but for rounding, since the room has no more per dollar of anything: so no pod costs
// less than on the better column.
func (p *Program) followFrontier(c *column) {
	better := p.feasible.at(c.best)
	total := dotQuads(p.sizes.at(c.index), better)
	if total <= 0 {
		p.spreadPriceEvenly(c)
		return
	}
	by := c.price / total * (1 - rounding)
	for i, duals := range better {
		for n, y := range duals {
			p.feasible.at(c.index)[i][n] = y * by
		}
	}
}

// mispriced are the offerings that were nearly worth their price. They get patterns at the master's own prices too, or
// smoothing could hide these (a misprice). Others rarely have one.
func (p *Program) mispriced(columns []*column) []*column {
	p.nearly = p.nearly[:0]
	for _, c := range columns {
		if c.pricing.worth > nearlyWorthIt*c.price {
			p.nearly = append(p.nearly, c)
		}
	}
	return p.nearly
}

// addPatterns solves the pricing LPs of the columns at these prices of buckets. It adds patterns that are worth more than
// they cost and not known, those with the most value per dollar first, and at most maxNewPerBucket for each bucket: the
// next round has other prices and finds what is still missing.
func (p *Program) addPatterns(columns []*column, price []float64) {
	p.offers = p.offers[:0]
	for _, c := range columns {
		if worth := c.pricing.solve(price, p.amounts, p.direction); worth > c.price*improves {
			p.offers = append(p.offers, patternOffer{c, worth / c.price})
		}
	}
	// Stable, so that ties are broken by the order of columns, and equal inputs give equal patterns.
	slices.SortStableFunc(p.offers, func(a, b patternOffer) int { return cmp.Compare(b.valuePerPrice, a.valuePerPrice) })
	p.newOfBucket = slices.Grow(p.newOfBucket[:0], len(p.buckets))[:len(p.buckets)]
	clear(p.newOfBucket)
	for _, o := range p.offers {
		p.content = o.c.pricing.appendContent(p.content[:0])
		if !slices.ContainsFunc(p.content, func(e entry) bool { return p.newOfBucket[e.row] < maxNewPerBucket }) || p.known(o.c) {
			continue
		}
		for _, e := range p.content {
			p.newOfBucket[e.row]++
		}
		o.c.patterns = append(o.c.patterns, int32(len(p.master.patterns)))
		p.master.add(pattern{slices.Clone(p.content), o.c.price, o.c.index})
	}
}

// patternOffer is a column with a pattern that is worth more than it costs.
type patternOffer struct {
	c             *column
	valuePerPrice float64
}

// known reports whether the master LP has the content as a pattern of the column.
func (p *Program) known(c *column) bool {
	return slices.ContainsFunc(c.patterns, func(j int32) bool {
		return slices.EqualFunc(p.content, p.master.patterns[j].entries, sameEntry)
	})
}

// sameEntry reports whether two entries are equal but for rounding.
func sameEntry(a, b entry) bool {
	return a.row == b.row && math.Abs(a.amount-b.amount) <= tiny*a.amount
}

// feasiblePrices sets each bucket's price to the least that it costs on any of the columns at feasible duals, and returns
// the value of all demand at these prices: the Lagrangian bound of the round.
func (p *Program) feasiblePrices(price []float64, columns []*column) float64 {
	for k := range price {
		price[k] = math.Inf(1)
	}
	for _, c := range columns {
		p.lowerPrices(price, c)
	}
	return dot(p.master.demand, price)
}

// lowerPrices lowers each bucket's price to what it costs on the offering at feasible duals.
func (p *Program) lowerPrices(price []float64, c *column) {
	feasible := p.feasible.at(c.index)
	if p.feasible.stride == 1 {
		duals := feasible[0]
		for _, k := range c.pricing.items {
			price[k] = min(price[k], p.amounts.list[k].dot(&duals))
		}
		return
	}
	for _, k := range c.pricing.items {
		price[k] = min(price[k], dotQuads(p.amounts.at(int(k)), feasible))
	}
}

// makeFeasible scales the duals so that the whole node costs its price and no more: then they are dual-feasible.
func (p *Program) makeFeasible(c *column) {
	total := dotQuads(p.sizes.at(c.index), c.pricing.duals)
	if total <= 0 { // no pod is worth anything here at these prices, and a factor would be infinite
		p.spreadPriceEvenly(c)
		return
	}
	by := c.price / total * (1 - rounding)
	for i, duals := range c.pricing.duals {
		for n, y := range duals {
			p.feasible.at(c.index)[i][n] = y * by
		}
	}
}

// spreadPriceEvenly divides the offering's price evenly among the axes that it has. Such prices are dual-feasible too.
func (p *Program) spreadPriceEvenly(c *column) {
	out := p.feasible.at(c.index)
	for n, size := range c.pricing.size {
		out[n/4][n%4] = 0
		if size > 0 {
			out[n/4][n%4] = c.price / size / float64(len(c.pricing.size)) * (1 - rounding)
		}
	}
}
