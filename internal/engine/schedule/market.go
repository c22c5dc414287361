package schedule

import (
	"cmp"
	"math"
	"slices"
)

// list makes the columns: each offering that some clientele can use, without those that another column dominates.
func (m *market) list(sv *solver) {
	type offer struct {
		column
		id int
	}
	var all []*offer
	for _, t := range sv.templates {
		for i := range t.types {
			ti := &t.types[i]
			if slices.ContainsFunc(ti.room, func(r int64) bool { return r < 0 }) {
				continue // nothing fits
			}
			for k := range ti.Offerings {
				o := &offer{column{room: ti.room, price: sv.priced(ti.Offerings[k].Price)}, ti.offering + k}
				for j, g := range m.clients {
					if g.offers.has(o.id) {
						o.clients |= 1 << j
					}
				}
				if o.clients != 0 {
					all = append(all, o)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *offer) int {
		if a.price != b.price {
			return cmp.Compare(a.price, b.price)
		}
		return cmp.Compare(a.id, b.id)
	})
	m.standIn = make([]int32, sv.offerings)
	for i := range m.standIn {
		m.standIn[i] = -1
	}
	for _, o := range all {
		k := 0
		for ; k < len(m.columns); k++ {
			if c := &m.columns[k]; o.clients&^c.clients == 0 && sv.dominated(o.room, c.room) {
				break
			}
		}
		if k == len(m.columns) {
			o.index, o.rent, o.sound = k, make(vec64, m.axes), make(vec64, m.axes)
			m.columns = append(m.columns, o.column)
		}
		m.standIn[o.id] = int32(k)
	}
	for k := range m.columns {
		for j, g := range m.clients {
			if m.columns[k].clients&(1<<j) != 0 {
				g.usable = append(g.usable, k)
			}
		}
	}
}

// dominated tells whether one room has no more than another of anything that any pod with a chance asks for.
func (sv *solver) dominated(room, by vec) bool {
	for i, r := range room {
		if r > by[i] && !sv.vain.has(i) {
			return false
		}
	}
	return true
}

// measure brings numbers to about one: amounts are in units of the largest room.
func (m *market) measure(classes []*class) {
	m.scale = make(vec64, m.axes)
	for i := range m.axes {
		for k := range m.columns {
			m.scale[i] = max(m.scale[i], float64(m.columns[k].room[i]))
		}
		if slices.ContainsFunc(classes, func(c *class) bool { return c.requests[i] > 0 }) && m.scale[i] > 0 {
			m.live = append(m.live, i)
		}
	}
	for k := range m.columns {
		for _, i := range m.live {
			m.columns[k].size = append(m.columns[k].size, float64(m.columns[k].room[i])/m.scale[i])
		}
	}
	m.share = make([][]float64, len(m.live))
}

const (
	// maxBuckets bounds the program's size: proportions are told apart as finely as it allows.
	maxBuckets = 24
	// perOctave is how finely to begin with.
	perOctave = 6.0
)

// effort bounds the search for rents.
type effort struct {
	// rounds is how often patterns are added, gap how much less than the best bound will do.
	rounds int
	gap    float64
	// promising is the share of its price that a column must have held at the last appraisal to be looked at again.
	promising float64
	// at is the share of the worth at the last appraisal that calls for this one.
	at float64
}

// What is left of a queue is worth a closer look where it falls into several clienteles, each of which has little.
var (
	forTheBound = effort{16, 0.003, 0, 0.7}
	forTheRest  = effort{6, 0.01, 0.9, 0.6}
)

// fillBuckets counts the classes' pods into buckets. The buckets are made at the first call.
func (m *market) fillBuckets(classes []*class) {
	for k := range m.buckets {
		m.buckets[k].demand = 0
	}
	if !m.ready {
		m.ready = true
		logs := m.proportions(classes)
		for step := perOctave; ; step /= 1.5 {
			m.makeBuckets(classes, logs, step)
			if len(m.buckets) <= maxBuckets+min(12*len(m.clients), 100) || step < 0.2 {
				break
			}
		}
		moved := m.start()
		for _, c := range classes {
			if c.bucket >= 0 {
				c.bucket = moved[c.bucket]
			}
		}
		return
	}
	for _, c := range classes {
		if c.client != nil && c.bucket >= 0 {
			m.buckets[c.bucket].demand += float64(c.count) * c.norm
		}
	}
}

// norm is how large a pod is, as a number.
func (m *market) norm(c *class) float64 {
	n := 0.0
	for _, i := range m.live {
		n += float64(c.requests[i]) / m.scale[i]
	}
	return n
}

// proportions are the logarithms of what a class asks for, on the first of the live axes, over what it asks for most of;
// others are mixed. They are -Inf where that is next to nothing.
type proportions [4]float64

func (m *market) proportions(classes []*class) []proportions {
	out := make([]proportions, len(classes))
	for k, c := range classes {
		c.norm = m.norm(c)
		top := 0.0
		for _, i := range m.live {
			top = max(top, c.amounts[i]/m.scale[i])
		}
		for n, i := range m.live[:min(len(m.live), len(out[k]))] {
			out[k][n] = math.Inf(-1)
			if x := c.amounts[i] / m.scale[i] / top; x > 1.0/64 {
				out[k][n] = math.Log2(x)
			}
		}
	}
	return out
}

// makeBuckets sorts classes by clientele and, in logarithmic steps, by the proportions of what they ask for.
func (m *market) makeBuckets(classes []*class, logs []proportions, perOctave float64) {
	m.buckets = m.buckets[:0]
	type step struct {
		client int
		steps  [len(proportions{})]int8
	}
	index := map[step]int{}
	for at, c := range classes {
		c.bucket = -1
		if c.client == nil || c.count == 0 {
			continue
		}
		key := step{client: c.client.index}
		for n, x := range logs[at][:min(len(m.live), len(key.steps))] {
			key.steps[n] = -128
			if !math.IsInf(x, -1) {
				key.steps[n] = int8(math.Round(x * perOctave))
			}
		}
		k, ok := index[key]
		if !ok {
			k = len(m.buckets)
			index[key] = k
			m.buckets = append(m.buckets, bucket{client: c.client.index, amount: make(vec64, len(m.live))})
		}
		b := &m.buckets[k]
		for n, i := range m.live {
			b.amount[n] += float64(c.requests[i]) / m.scale[i] * float64(c.count)
		}
		b.demand += float64(c.count) * c.norm
		c.bucket = k
	}
	for k := range m.buckets {
		b := &m.buckets[k]
		b.need = make(vec64, m.axes)
		for n, i := range m.live {
			b.amount[n] /= b.demand
			b.need[i] = b.amount[n] * m.scale[i]
		}
	}
}

// start gives the covering one pattern per bucket: the column that is cheapest for it alone. Buckets that no column holds
// are worth nothing; the result tells where the others are now, and -1 for those.
func (m *market) start() []int {
	var rows []bucket
	moved := make([]int, len(m.buckets))
	for k, b := range m.buckets {
		moved[k] = -1
		best, price, held := -1, math.Inf(1), 0.0
		for _, i := range m.clients[b.client].usable {
			col := &m.columns[i]
			n := math.Inf(1)
			for axis, x := range b.amount {
				if x > 0 {
					n = min(n, col.size[axis]/x)
				}
			}
			if n > tiny && col.price/n < price {
				best, price, held = i, col.price/n, n
			}
		}
		if best >= 0 {
			moved[k] = len(rows)
			m.lp.patterns = append(m.lp.patterns, pattern{[]int{len(rows)}, []float64{held}, m.columns[best].price, best})
			rows = append(rows, b)
		}
	}
	m.buckets = rows
	return moved
}

// solve finds rents that make the buckets' demand worth as much as can be, or nearly.
func (m *market) solve(e effort) {
	if len(m.buckets) == 0 {
		for k := range m.columns {
			m.flat(&m.columns[k])
		}
		return
	}
	m.lp.demand = m.lp.demand[:0]
	for k := range m.buckets {
		m.lp.demand = append(m.lp.demand, m.buckets[k].demand)
	}
	m.lp.reset()
	m.looked = m.looked[:0]
	for k := range m.columns {
		if c := &m.columns[k]; c.value >= e.promising*c.price {
			m.looked = append(m.looked, c)
		}
	}
	best := -1.0
	m.centre = zeroed(m.centre, len(m.buckets))
	try := make([]float64, len(m.buckets))
	for range e.rounds {
		m.lp.optimise()
		total := 0.0
		for k, y := range m.lp.price {
			m.lp.price[k] = max(0, y)
			total += max(0, y) * m.lp.demand[k]
		}
		if best >= total*(1-e.gap) {
			break
		}
		// Patterns are looked for between the best sound prices known and those that the patterns so far would need:
		// at the latter alone they would come one after the other, each barely better than the last.
		for k, y := range m.lp.price {
			try[k] = y
			if best >= 0 {
				try[k] = inwards*m.centre[k] + (1-inwards)*y
			}
		}
		if best >= 0 {
			for _, c := range m.looked {
				if c.value > 0.97*c.price && m.rate(c, m.lp.price) > c.price*(1+1e-6) {
					m.lp.patterns = append(m.lp.patterns, m.pattern(c))
				}
			}
		}
		for _, c := range m.looked {
			if m.rate(c, try) > c.price*(1+1e-6) {
				m.lp.patterns = append(m.lp.patterns, m.pattern(c))
			}
			m.settle(c)
		}
		if m.soundPrices(try) > best {
			best = m.lp.worth(try)
			m.centre, try = try, m.centre
			for _, c := range m.looked {
				c.best = append(c.best[:0], c.sound...)
			}
		}
	}
	for _, c := range m.looked {
		m.rate(c, m.centre)
		if best >= 0 { // or nothing better is known than the last rents, which are sound
			c.sound = append(c.sound[:0], c.best...)
		}
	}
}

// inwards is how far from the prices of the program towards the best sound ones patterns are looked for.
const inwards = 0.6

// soundPrices gives each bucket the least rent that it would pay anywhere, and returns what that makes all demand worth.
func (m *market) soundPrices(price []float64) float64 {
	total := 0.0
	for k := range m.buckets {
		b := &m.buckets[k]
		least := math.Inf(1)
		for _, i := range m.clients[b.client].usable {
			if c := &m.columns[i]; b.need.dot(c.sound) < least && b.within(c) {
				least = b.need.dot(c.sound)
			}
		}
		price[k] = least
		total += least * b.demand
	}
	return total
}

// rate finds the most worth that the column's node can hold at these prices of buckets, and the rents that say so.
func (m *market) rate(c *column, price []float64) float64 {
	m.items, m.worth = m.items[:0], m.worth[:0]
	for i := range m.share {
		m.share[i] = m.share[i][:0]
	}
	for k := range m.buckets {
		b := &m.buckets[k]
		if price[k] <= 0 || c.clients&(1<<b.client) == 0 {
			continue
		}
		if !b.within(c) {
			continue
		}
		m.items, m.worth = append(m.items, k), append(m.worth, price[k])
		for axis, x := range b.amount {
			share := 0.0
			if x > 0 {
				share = x / c.size[axis]
			}
			m.share[axis] = append(m.share[axis], share)
		}
	}
	m.amounts = zeroed(m.amounts, len(m.items))
	m.rents = zeroed(m.rents, len(m.live))
	c.value = m.fill.solve(m.worth, m.share, m.amounts, m.rents)
	for axis, i := range m.live {
		c.rent[i] = 0
		if c.size[axis] > 0 {
			c.rent[i] = m.rents[axis] / c.size[axis] / m.scale[i]
		}
	}
	return c.value
}

// within tells whether the column has some of everything that the bucket asks for.
func (b *bucket) within(c *column) bool {
	for axis, x := range b.amount {
		if x > 0 && c.size[axis] <= 0 {
			return false
		}
	}
	return true
}

// pattern is what the column's node holds by the last rate.
func (m *market) pattern(c *column) pattern {
	p := pattern{cost: c.price, column: c.index}
	for i, x := range m.amounts {
		if x > tiny {
			p.rows, p.amounts = append(p.rows, m.items[i]), append(p.amounts, x)
		}
	}
	return p
}

// settle makes the rents sound: those of the whole node add up to its price and no more.
func (m *market) settle(c *column) {
	total := 0.0
	for i, r := range c.room {
		total += float64(r) * c.rent[i]
	}
	if total <= 0 {
		m.flat(c)
		return
	}
	for i := range c.sound {
		c.sound[i] = c.rent[i] * (c.price / total) * (1 - 1e-9)
	}
}

// flat shares the column's price evenly among the axes that it has.
func (m *market) flat(c *column) {
	c.value = 0
	for _, i := range m.live {
		c.rent[i], c.sound[i] = 0, 0
		if c.room[i] > 0 {
			c.sound[i] = c.price / float64(c.room[i]) / float64(len(m.live)) * (1 - 1e-9)
		}
	}
}
