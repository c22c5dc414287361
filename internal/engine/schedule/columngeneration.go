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

// list makes the columns: each offering that some clientele can use, without those that another column dominates.
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

// dominated tells whether one room has no more than another of anything that any pod with a chance asks for.
func (sv *solver) dominated(room, by vec) bool {
	for i, r := range room {
		if r > by[i] && !sv.unusedAxes.has(i) {
			return false
		}
	}
	return true
}

// measure brings numbers to about one: amounts are in units of the largest room.
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
	// maxBuckets bounds the program's size: proportions are told apart as finely as it allows.
	maxBuckets = 24
	// bucketsPerOctave is how finely to begin with.
	bucketsPerOctave = 6.0
)

// effort bounds the search for rents.
type lpEffort struct {
	// rounds is how often patterns are added, gap how much less than the best bound will do.
	rounds int
	gap    float64
	// promising is the share of its price that a column must have held at the last appraisal to be looked at again.
	minFill float64
	// at is the share of the worth at the last appraisal that calls for this one.
	resolveBelow float64
}

// What is left of a queue is worth a closer look where it falls into several clienteles, each of which has little.
var (
	fullEffort  = lpEffort{16, 0.003, 0, 0.7}
	quickEffort = lpEffort{6, 0.01, 0.9, 0.6}
)

// fillBuckets counts the classes' pods into buckets. The buckets are made at the first call.
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

// norm is how large a pod is, as a number.
func (m *lpRelaxation) norm(c *class) float64 {
	n := 0.0
	for _, i := range m.axesInUse {
		n += float64(c.requests[i]) / m.scale[i]
	}
	return n
}

// proportions are the logarithms of what a class asks for, on the first of the live axes, over what it asks for most of;
// others are mixed. They are -Inf where that is next to nothing.
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

// makeBuckets sorts classes by clientele and, in logarithmic steps, by the proportions of what they ask for.
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

// start gives the covering one pattern per bucket: the column that is cheapest for it alone. Buckets that no column holds
// are worth nothing; the result tells where the others are now, and -1 for those.
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

// solve finds rents that make the buckets' demand worth as much as can be, or nearly.
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
	try := make([]float64, len(m.buckets))
	for range e.rounds {
		m.master.optimize()
		total := 0.0
		for k, y := range m.master.price {
			m.master.price[k] = max(0, y)
			total += max(0, y) * m.master.demand[k]
		}
		if best >= total*(1-e.gap) {
			break
		}
		// Patterns are looked for between the best sound prices known and those that the patterns so far would need:
		// at the latter alone they would come one after the other, each barely better than the last.
		for k, y := range m.master.price {
			try[k] = y
			if best >= 0 {
				try[k] = smoothing*m.stabilityCenter[k] + (1-smoothing)*y
			}
		}
		if best >= 0 {
			for _, c := range m.active {
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
		if best >= 0 { // or nothing better is known than the last rents, which are sound
			c.feasibleDuals = append(c.feasibleDuals[:0], c.bestFeasible...)
		}
	}
}

// inwards is how far from the prices of the program towards the best sound ones patterns are looked for.
const smoothing = 0.6

// feasiblePrices gives each bucket the least rent that it would pay anywhere, and returns what that makes all demand worth.
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

// rate finds the most worth that the column's node can hold at these prices of buckets, and the rents that say so.
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

// within tells whether the column has some of everything that the bucket asks for.
func (b *bucket) usesOnlyAxesOf(c *lpOffering) bool {
	for axis, x := range b.amount {
		if x > 0 && c.size[axis] <= 0 {
			return false
		}
	}
	return true
}

// pattern is what the column's node holds by the last rate.
func (m *lpRelaxation) pattern(c *lpOffering) pattern {
	p := pattern{cost: c.price, column: c.index}
	for i, x := range m.amounts {
		if x > tiny {
			p.rows, p.amounts = append(p.rows, m.items[i]), append(p.amounts, x)
		}
	}
	return p
}

// settle makes the rents sound: those of the whole node add up to its price and no more.
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

// flat shares the column's price evenly among the axes that it has.
func (m *lpRelaxation) spreadPriceEvenly(c *lpOffering) {
	c.packedValue = 0
	for _, i := range m.axesInUse {
		c.duals[i], c.feasibleDuals[i] = 0, 0
		if c.room[i] > 0 {
			c.feasibleDuals[i] = c.price / float64(c.room[i]) / float64(len(m.axesInUse)) * (1 - 1e-9)
		}
	}
}
