package schedule

import (
	"cmp"
	"math"
	"slices"
)

// numberedOffering is an offering before dominated ones are dropped, with its number over all templates.
type numberedOffering struct {
	lpOffering
	id int
}

// addOfferings collects the offerings that some demand class can use, without dominated ones: those for which a cheaper
// or equal offering has at least the same room and the same demand classes.
//
// Cost: offerings times the offerings kept.
func (m *lpRelaxation) addOfferings(sv *solver) {
	var all []*numberedOffering
	for _, t := range sv.templates {
		for i := range t.types {
			ti := &t.types[i]
			if slices.ContainsFunc(ti.room, func(r int64) bool { return r < 0 }) {
				continue // nothing fits
			}
			for k := range ti.Offerings {
				o := &numberedOffering{lpOffering{room: ti.room, price: sv.nodePrice(ti.Offerings[k].Price)}, ti.offering + k}
				for j, g := range m.demandClasses {
					if g.offerings.has(o.id) {
						o.demandClasses |= 1 << j
					}
				}
				if o.demandClasses != 0 {
					all = append(all, o)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *numberedOffering) int {
		if a.price != b.price {
			return cmp.Compare(a.price, b.price)
		}
		return cmp.Compare(a.id, b.id)
	})
	m.representative = make([]int32, sv.offerings)
	for i := range m.representative {
		m.representative[i] = -1
	}
	for _, o := range all {
		k := 0
		for ; k < len(m.offerings); k++ {
			if c := &m.offerings[k]; o.demandClasses&^c.demandClasses == 0 && sv.dominated(o.room, c.room) {
				break
			}
		}
		if k == len(m.offerings) {
			o.index, o.duals, o.feasibleDuals = k, make(vec64, m.axes), make(vec64, m.axes)
			m.offerings = append(m.offerings, o.lpOffering)
		}
		m.representative[o.id] = int32(k)
	}
	for k := range m.offerings {
		for j, g := range m.demandClasses {
			if m.offerings[k].demandClasses&(1<<j) != 0 {
				g.usable = append(g.usable, k)
			}
		}
	}
}

// dominated reports whether a room has no more than another of anything that a placeable pod requests.
func (sv *solver) dominated(room, by vec) bool {
	for i, r := range room {
		if r > by[i] && !sv.unusedAxes.has(i) {
			return false
		}
	}
	return true
}

// scaleAxes brings numbers to about one, for the simplex method: amounts are in units of the largest room.
func (m *lpRelaxation) scaleAxes(classes []*class) {
	m.scale = make(vec64, m.axes)
	for i := range m.axes {
		for k := range m.offerings {
			m.scale[i] = max(m.scale[i], float64(m.offerings[k].room[i]))
		}
		if slices.ContainsFunc(classes, func(c *class) bool { return c.requests[i] > 0 }) && m.scale[i] > 0 {
			m.axesInUse = append(m.axesInUse, i)
		}
	}
	for k := range m.offerings {
		for _, i := range m.axesInUse {
			m.offerings[k].size = append(m.offerings[k].size, float64(m.offerings[k].room[i])/m.scale[i])
		}
	}
	m.shares = make([][]float64, len(m.axesInUse))
}

const (
	// maxBuckets bounds the rows of the master LP: proportions are told apart as finely as it allows. The basis inverse
	// has rows squared entries, and a pivot touches all of them.
	maxBuckets = 24
	// bucketsPerOctave is the resolution of proportions to start with: steps of about 12 %.
	bucketsPerOctave = 6.0
)

// lpEffort bounds one run of column generation.
type lpEffort struct {
	// rounds bounds how often patterns are added, gap is the relative distance to the optimum at which it stops.
	rounds int
	gap    float64
	// minFill is the share of its price that an offering must have held at the last solve to be looked at again.
	minFill float64
	// resolveBelow is the share of the last solve's value below which the rest is solved again.
	resolveBelow float64
}

// The rest of a queue gets the full effort where it falls into several demand classes, with few pods in each. The gap
// of fullEffort, 0.3 %, is well below similarCost, so that the bound does not decide between plans.
var (
	fullEffort  = lpEffort{16, 0.003, 0, 0.7}
	quickEffort = lpEffort{6, 0.01, 0.9, 0.6}
)

// fillBuckets sums the classes' pods into buckets. The first call makes the buckets, coarser until they are few enough.
func (m *lpRelaxation) fillBuckets(classes []*class) {
	for k := range m.buckets {
		m.buckets[k].demand = 0
	}
	if !m.ready {
		m.ready = true
		logs := m.proportions(classes)
		for step := bucketsPerOctave; ; step /= 1.5 {
			m.makeBuckets(classes, logs, step)
			if len(m.buckets) <= maxBuckets+min(12*len(m.demandClasses), 100) || step < 0.2 {
				break
			}
		}
		moved := m.seedMaster()
		for _, c := range classes {
			if c.bucket >= 0 {
				c.bucket = moved[c.bucket]
			}
		}
		return
	}
	for _, c := range classes {
		if c.demand != nil && c.bucket >= 0 {
			m.buckets[c.bucket].demand += float64(c.count) * c.norm
		}
	}
}

// norm is the size of a pod as one number: the sum of its shares of the largest room.
func (m *lpRelaxation) norm(c *class) float64 {
	n := 0.0
	for _, i := range m.axesInUse {
		n += float64(c.requests[i]) / m.scale[i]
	}
	return n
}

// proportions are binary logarithms: the requests of a class on the first axes in use, relative to its largest. They
// are -Inf where the request is negligible. Further axes are not told apart.
type proportions [4]float64

func (m *lpRelaxation) proportions(classes []*class) []proportions {
	out := make([]proportions, len(classes))
	for k, c := range classes {
		c.norm = m.norm(c)
		top := 0.0
		for _, i := range m.axesInUse {
			top = max(top, c.amounts[i]/m.scale[i])
		}
		for n, i := range m.axesInUse[:min(len(m.axesInUse), len(out[k]))] {
			out[k][n] = math.Inf(-1)
			if x := c.amounts[i] / m.scale[i] / top; x > 1.0/64 {
				out[k][n] = math.Log2(x)
			}
		}
	}
	return out
}

// bucketKey identifies a bucket: a demand class and rounded proportions.
type bucketKey struct {
	demandClass int
	steps       [len(proportions{})]int8
}

// makeBuckets groups classes by demand class and, in logarithmic steps, by the proportions of their requests.
func (m *lpRelaxation) makeBuckets(classes []*class, logs []proportions, perOctave float64) {
	m.buckets = m.buckets[:0]
	index := map[bucketKey]int{}
	for at, c := range classes {
		c.bucket = -1
		if c.demand == nil || c.count == 0 {
			continue
		}
		key := bucketKey{demandClass: c.demand.index}
		for n, x := range logs[at][:min(len(m.axesInUse), len(key.steps))] {
			key.steps[n] = -128
			if !math.IsInf(x, -1) {
				key.steps[n] = int8(math.Round(x * perOctave))
			}
		}
		k, ok := index[key]
		if !ok {
			k = len(m.buckets)
			index[key] = k
			m.buckets = append(m.buckets, bucket{demandClass: c.demand.index, amount: make(vec64, len(m.axesInUse))})
		}
		b := &m.buckets[k]
		for n, i := range m.axesInUse {
			b.amount[n] += float64(c.requests[i]) / m.scale[i] * float64(c.count)
		}
		b.demand += float64(c.count) * c.norm
		c.bucket = k
	}
	for k := range m.buckets {
		b := &m.buckets[k]
		b.need = make(vec64, m.axes)
		for n, i := range m.axesInUse {
			b.amount[n] /= b.demand
			b.need[i] = b.amount[n] * m.scale[i]
		}
	}
}

// seedMaster gives the master LP one pattern per bucket: the offering that is cheapest for it alone. These patterns are
// the first basis. It drops buckets that no offering holds and returns the new index of each bucket, -1 for dropped
// ones.
func (m *lpRelaxation) seedMaster() []int {
	var rows []bucket
	moved := make([]int, len(m.buckets))
	for k, b := range m.buckets {
		moved[k] = -1
		best, price, fits := -1, math.Inf(1), 0.0
		for _, i := range m.demandClasses[b.demandClass].usable {
			col := &m.offerings[i]
			n := math.Inf(1)
			for axis, x := range b.amount {
				if x > 0 {
					n = min(n, col.size[axis]/x)
				}
			}
			if n > tiny && col.price/n < price {
				best, price, fits = i, col.price/n, n
			}
		}
		if best >= 0 {
			moved[k] = len(rows)
			m.master.patterns = append(m.master.patterns, pattern{[]int{len(rows)}, []float64{fits}, m.offerings[best].price, best})
			rows = append(rows, b)
		}
	}
	m.buckets = rows
	return moved
}

// generateColumns computes dual prices that make the buckets' demand worth as much as possible, by column generation
// (Gilmore and Gomory 1961) with dual smoothing (Wentges 1997).
//
// Invariants: feasibleDuals are dual-feasible after every round, so every round yields a valid lower bound and any of
// them may be the last. stabilityCenter has the bucket prices of the best bound, bestFeasible the duals that prove it.
// The master's value is an upper bound on the relaxation, so the two together measure the gap.
//
// Cost: rounds times active offerings times one pricing LP, plus at most maxPivots pivots per round.
func (m *lpRelaxation) generateColumns(e lpEffort) {
	if len(m.buckets) == 0 {
		for k := range m.offerings {
			m.spreadPriceEvenly(&m.offerings[k])
		}
		return
	}
	m.master.demand = m.master.demand[:0]
	for k := range m.buckets {
		m.master.demand = append(m.master.demand, m.buckets[k].demand)
	}
	m.master.reset()
	m.active = m.active[:0]
	for k := range m.offerings {
		if c := &m.offerings[k]; c.packedValue >= e.minFill*c.price {
			m.active = append(m.active, c)
		}
	}
	best := -1.0
	m.stabilityCenter = zeroed(m.stabilityCenter, len(m.buckets))
	// Patterns are searched at try, between the stability center and the master's prices. At the master's prices alone
	// they would come one after the other, each barely better than the last.
	try := make([]float64, len(m.buckets))
	for range e.rounds {
		m.master.optimize()
		total := 0.0
		for k, y := range m.master.price {
			m.master.price[k] = max(0, y)
			total += max(0, y) * m.master.demand[k]
		}
		// Lower and upper bound meet: further patterns cannot improve the prices by more than the gap.
		if best >= total*(1-e.gap) {
			break
		}
		for k, y := range m.master.price {
			try[k] = y
			if best >= 0 {
				try[k] = smoothing*m.stabilityCenter[k] + (1-smoothing)*y
			}
		}
		if best >= 0 {
			for _, c := range m.active {
				// Offerings that were nearly worth their price also get a pattern at the master's own prices, or
				// smoothing could hide it (misprice). Others rarely have one.
				if c.packedValue > 0.97*c.price && m.solvePricing(c, m.master.price) > c.price*(1+1e-6) {
					m.master.patterns = append(m.master.patterns, m.pattern(c))
				}
			}
		}
		for _, c := range m.active {
			if m.solvePricing(c, try) > c.price*(1+1e-6) {
				m.master.patterns = append(m.master.patterns, m.pattern(c))
			}
			m.makeFeasible(c)
		}
		// The smoothed prices improve the bound: a serious step of the stabilization. Otherwise it is a null step,
		// which only adds patterns.
		if m.feasiblePrices(try) > best {
			best = m.master.valueAt(try)
			m.stabilityCenter, try = try, m.stabilityCenter
			for _, c := range m.active {
				c.bestFeasible = append(c.bestFeasible[:0], c.feasibleDuals...)
			}
		}
	}
	for _, c := range m.active {
		m.solvePricing(c, m.stabilityCenter)
		if best >= 0 { // otherwise the last duals, which are feasible, are the best
			c.feasibleDuals = append(c.feasibleDuals[:0], c.bestFeasible...)
		}
	}
}

// smoothing is the weight of the stability center in the prices at which patterns are searched. At 0 these would be the
// master's prices, which oscillate; near 1 the search would hardly move. A little over one half keeps half of the
// master's step.
const smoothing = 0.6

// feasiblePrices sets each bucket's price to the least that it costs anywhere at feasibleDuals, and returns the value
// of all demand at these prices: the Lagrangian bound of the round.
func (m *lpRelaxation) feasiblePrices(price []float64) float64 {
	total := 0.0
	for k := range m.buckets {
		b := &m.buckets[k]
		least := math.Inf(1)
		for _, i := range m.demandClasses[b.demandClass].usable {
			if c := &m.offerings[i]; b.need.dot(c.feasibleDuals) < least && b.usesOnlyAxesOf(c) {
				least = b.need.dot(c.feasibleDuals)
			}
		}
		price[k] = least
		total += least * b.demand
	}
	return total
}

// solvePricing computes the most value that a node of the offering holds at these prices of buckets, and the dual
// prices that prove it.
func (m *lpRelaxation) solvePricing(c *lpOffering, price []float64) float64 {
	m.items, m.values = m.items[:0], m.values[:0]
	for i := range m.shares {
		m.shares[i] = m.shares[i][:0]
	}
	for k := range m.buckets {
		b := &m.buckets[k]
		if price[k] <= 0 || c.demandClasses&(1<<b.demandClass) == 0 {
			continue
		}
		if !b.usesOnlyAxesOf(c) {
			continue
		}
		m.items, m.values = append(m.items, k), append(m.values, price[k])
		for axis, x := range b.amount {
			share := 0.0
			if x > 0 {
				share = x / c.size[axis]
			}
			m.shares[axis] = append(m.shares[axis], share)
		}
	}
	m.amounts = zeroed(m.amounts, len(m.items))
	m.duals = zeroed(m.duals, len(m.axesInUse))
	c.packedValue = m.pricing.solve(m.values, m.shares, m.amounts, m.duals)
	for axis, i := range m.axesInUse {
		c.duals[i] = 0
		if c.size[axis] > 0 {
			c.duals[i] = m.duals[axis] / c.size[axis] / m.scale[i]
		}
	}
	return c.packedValue
}

// usesOnlyAxesOf reports whether the offering has some of every resource that the bucket requests.
func (b *bucket) usesOnlyAxesOf(c *lpOffering) bool {
	for axis, x := range b.amount {
		if x > 0 && c.size[axis] <= 0 {
			return false
		}
	}
	return true
}

// pattern is the content of the offering's node in the last solution of solvePricing.
func (m *lpRelaxation) pattern(c *lpOffering) pattern {
	p := pattern{cost: c.price, column: c.index}
	for i, x := range m.amounts {
		if x > tiny {
			p.rows, p.amounts = append(p.rows, m.items[i]), append(p.amounts, x)
		}
	}
	return p
}

// makeFeasible scales the duals so that the whole node costs its price and no more: then they are dual-feasible.
func (m *lpRelaxation) makeFeasible(c *lpOffering) {
	total := 0.0
	for i, r := range c.room {
		total += float64(r) * c.duals[i]
	}
	if total <= 0 {
		m.spreadPriceEvenly(c)
		return
	}
	for i := range c.feasibleDuals {
		c.feasibleDuals[i] = c.duals[i] * (c.price / total) * (1 - 1e-9)
	}
}

// spreadPriceEvenly divides the offering's price evenly among the axes that it has. Such prices are dual-feasible too.
func (m *lpRelaxation) spreadPriceEvenly(c *lpOffering) {
	c.packedValue = 0
	for _, i := range m.axesInUse {
		c.duals[i], c.feasibleDuals[i] = 0, 0
		if c.room[i] > 0 {
			c.feasibleDuals[i] = c.price / float64(c.room[i]) / float64(len(m.axesInUse)) * (1 - 1e-9)
		}
	}
}
