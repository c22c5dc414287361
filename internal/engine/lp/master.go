package lp

import "slices"

// masterLP is the linear program "choose the cheapest mix of patterns that covers every row's demand". A row is a
// bucket. A pattern is the content of one node at that node's price. Patterns are added in rounds; the dual prices of
// rows decide which patterns would reduce the cost.
//
// It is solved by the revised simplex method with an explicit basis inverse. The first len(demand) patterns cover one
// row each: together they are the starting basis.
type masterLP struct {
	demand    []float64
	patterns  []pattern
	sparse    []entry // entries of the first flattened patterns, in order
	flattened int
	basis     []int // pattern indexes; ^k is the surplus of row k
	inverse   []float64
	level     []float64 // how many nodes of each basic pattern
	price     []float64 // dual price per unit of each row
	scratch   []float64
}

// entry is the amount of one row in a pattern.
type entry struct {
	row    int
	amount float64
}

// pattern is what one node of an offering holds of some rows.
type pattern struct {
	rows    []int
	amounts []float64
	cost    float64
	column  int
}

const (
	// tiny is what counts as zero in programs with numbers scaled to about one: well above the rounding error of a few
	// hundred pivots on 64-bit floats.
	tiny = 1e-9
	// maxPivots bounds the work between two rounds of patterns. The basis stays feasible wherever it stops, so the
	// prices can be used.
	maxPivots = 200
)

// reset returns to the starting basis of one pattern per row.
func (m *masterLP) reset() {
	n := len(m.demand)
	m.basis = m.basis[:0]
	m.inverse = zeroed(m.inverse, n*n)
	m.level, m.price, m.scratch = zeroed(m.level, n), zeroed(m.price, n), zeroed(m.scratch, n)
	for k := range n {
		p := &m.patterns[k]
		m.basis = append(m.basis, k)
		m.inverse[k*n+k] = 1 / p.amounts[0]
		m.level[k] = m.demand[k] / p.amounts[0]
		m.price[k] = p.cost / p.amounts[0]
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
		leave := m.leaving(enter)
		if leave < 0 {
			return
		}
		m.pivot(enter, leave, gain)
	}
}

// noColumn means that no pattern reduces the cost.
const noColumn = int(^uint(0) >> 1)

// entering is the pattern with the largest relative reduced cost, that is gain per dollar, and its gain per unit.
// Relative to the price, since a pattern of a large node has a larger gain than an equally good one of a small node.
func (m *masterLP) entering() (column int, gain float64) {
	column = noColumn
	most := 1e-7
	m.flatten()
	at := 0
	for j := range m.patterns {
		p := &m.patterns[j]
		worth, end := 0.0, at+len(p.rows)
		for _, e := range m.sparse[at:end] {
			worth += m.price[e.row] * e.amount
		}
		at = end
		if rate := (worth - p.cost) / p.cost; rate > most {
			column, gain, most = j, worth-p.cost, rate
		}
	}
	for k, y := range m.price {
		if -y > tiny && -y > most {
			column, gain, most = ^k, -y, -y
		}
	}
	return column, gain
}

// flatten copies new patterns into one contiguous slice, since entering scans all of them at every pivot.
func (m *masterLP) flatten() {
	for ; m.flattened < len(m.patterns); m.flattened++ {
		p := &m.patterns[m.flattened]
		for i, r := range p.rows {
			m.sparse = append(m.sparse, entry{r, p.amounts[i]})
		}
	}
}

// leaving is the basis row that limits the entering pattern (minimum ratio test). It leaves the direction in scratch.
// Ties go to the lowest index, as in Bland's rule.
func (m *masterLP) leaving(enter int) int {
	n := len(m.demand)
	d := m.scratch
	clear(d)
	add := func(row int, amount float64) {
		for i := range d {
			d[i] += m.inverse[i*n+row] * amount
		}
	}
	if enter < 0 {
		add(^enter, -1)
	} else {
		p := &m.patterns[enter]
		for i, r := range p.rows {
			add(r, p.amounts[i])
		}
	}
	leave, least := -1, 0.0
	for i, x := range d {
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
			other[j] -= x * y
		}
		m.level[i] = max(0, m.level[i]-x*m.level[leave])
	}
	for j, y := range row {
		m.price[j] -= gain * y
	}
	m.basis[leave] = enter
}

// clampPrices makes all prices of rows non-negative and returns the value of all demand at them.
func (m *masterLP) clampPrices() float64 {
	for k, y := range m.price {
		m.price[k] = max(0, y)
	}
	return m.valueAt(m.price)
}

// valueAt is the value of all demand at these prices of rows.
func (m *masterLP) valueAt(price []float64) float64 {
	total := 0.0
	for k, d := range m.demand {
		total += d * price[k]
	}
	return total
}
