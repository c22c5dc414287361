package lp

import "slices"

// masterLP is the linear program "choose the cheapest mix of patterns that covers every row's demand". A row is a
// bucket. A pattern is the content of one node at that node's price. Patterns are added in rounds; the dual prices of
// rows decide which patterns would reduce the cost.
//
// It is solved by the revised simplex method with an explicit basis inverse. The first len(demand) patterns cover one
// row each: together they are the first basis.
type masterLP struct {
	demand   []float64
	patterns []pattern
	// entries are the entries of the first len(finishes) patterns, in order; finishes[j] is where pattern j finishes.
	entries []entry
	ends    []int32
	cost    []float64
	basis   []int // pattern indexes; ^k is the surplus of row k
	inverse []float64
	level   []float64 // how many nodes of each basic pattern
	price   []float64 // dual price per unit of each row
	scratch []float64
	pivots  int // since the last reset
}

// entry is the amount of one row in a pattern.
type entry struct {
	row    int32
	amount float64
}

// pattern describes what one node of an offering holds of some rows, in the order of rows.
type pattern struct {
	entries []entry
	cost    float64
	column  int
}

const (
	// tiny states what counts as zero in programs with numbers scaled to about one: well above the rounding error of a few
	// hundred pivots on 64-bit floats.
	tiny = 1e-9
	// maxPivots bounds the work between two rounds of patterns. The basis stays feasible wherever it stops, so the
	// prices can be used.
	maxPivots = 200
	// leastGain is the relative reduced cost below which a pattern does not reduce the cost.
	leastGain = 1e-7
)

// add adds a pattern.
func (m *masterLP) add(p pattern) {
	m.patterns = append(m.patterns, p)
	m.entries = append(m.entries, p.entries...)
	m.ends = append(m.ends, int32(len(m.entries)))
	m.cost = append(m.cost, p.cost)
}

// reset returns to the first basis, of one pattern per row.
func (m *masterLP) reset() {
	n := len(m.demand)
	m.basis, m.pivots = m.basis[:0], 0
	m.inverse = zeroed(m.inverse, n*n)
	m.level, m.price, m.scratch = zeroed(m.level, n), zeroed(m.price, n), zeroed(m.scratch, n)
	for k := range n {
		p := &m.patterns[k]
		amount := p.entries[0].amount
		m.basis = append(m.basis, k)
		m.inverse[k*n+k] = 1 / amount
		m.level[k] = m.demand[k] / amount
		m.price[k] = p.cost / amount
	}
}

func zeroed(s []float64, n int) []float64 {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// optimize improves the mix of known patterns until no pattern reduces the cost.
//
// Invariant: level is not negative (primal feasibility), and inverse is the inverse of the basis. Cost of a pivot: the
// entries of all patterns for choosing, rows squared for updating.
func (m *masterLP) optimize() {
	for range maxPivots {
		enter, gain := m.entering()
		if enter == noColumn {
			return
		}
		m.setDirection(enter)
		leave := m.leaving()
		if leave < 0 {
			return
		}
		m.pivot(enter, leave, gain)
		for i, x := range m.level {
			m.level[i] = max(0, x)
		}
	}
}

// noColumn means that no pattern reduces the cost.
const noColumn = int(^uint(0) >> 1)

// entering is the pattern with the largest relative reduced cost, that is gain per dollar, and its gain per unit.
// Relative to the price, since a pattern of a large node has a larger gain than an equally good one of a small node.
func (m *masterLP) entering() (column int, gain float64) {
	column = noColumn
	most := leastGain
	at := int32(0)
	for j, end := range m.ends {
		worth := 0.0
		for _, e := range m.entries[at:end] {
			worth += float64(m.price[e.row] * e.amount)
		}
		at = end
		if over := worth - m.cost[j]; over > most*m.cost[j] {
			column, gain, most = j, over, over/m.cost[j]
		}
	}
	for k, y := range m.price {
		if -y > tiny && -y > most {
			column, gain, most = ^k, -y, -y
		}
	}
	return column, gain
}

// setDirection computes into scratch how the levels of the basis fall per unit of the entering column.
func (m *masterLP) setDirection(enter int) {
	n := len(m.demand)
	d := m.scratch
	if enter < 0 {
		for i := range d {
			d[i] = -m.inverse[i*n+^enter]
		}
		return
	}
	clear(d)
	for _, e := range m.patterns[enter].entries {
		for i := range d {
			d[i] += float64(m.inverse[i*n+int(e.row)] * e.amount)
		}
	}
}

// leaving is the basis row that limits the entering pattern (minimum ratio test). Ties go to the lowest index, as in
// Bland's rule.
func (m *masterLP) leaving() int {
	leave, least := -1, 0.0
	for i, x := range m.scratch {
		if x <= tiny {
			continue
		}
		if ratio := m.level[i] / x; leave < 0 || ratio < least || ratio == least && m.basis[i] < m.basis[leave] {
			leave, least = i, ratio
		}
	}
	return leave
}

// pivot exchanges the entering pattern with a basic one: it updates inverse, levels and prices.
func (m *masterLP) pivot(enter, leave int, gain float64) {
	n := len(m.demand)
	d := m.scratch
	row := m.inverse[leave*n : leave*n+n]
	by := 1 / d[leave]
	for j := range row {
		row[j] *= by
	}
	m.level[leave] *= by
	for i, x := range d {
		if i == leave || x == 0 {
			continue
		}
		other := m.inverse[i*n : i*n+n]
		for j, y := range row {
			other[j] -= float64(x * y)
		}
		m.level[i] -= float64(x * m.level[leave])
	}
	for j, y := range row {
		m.price[j] -= float64(gain * y)
	}
	m.basis[leave] = enter
	m.pivots++
}

// clampPrices makes all prices of rows non-negative and returns the value of all demand at them.
func (m *masterLP) clampPrices() float64 {
	for k, y := range m.price {
		m.price[k] = max(0, y)
	}
	return dot(m.demand, m.price)
}
