package lp

import (
	"math"
	"slices"
)

const (
	// maxRepairs bounds the pivots with which the last basis is made feasible for a new demand, per row. More would cost
	// as much as the way from the first basis.
	maxRepairs = 2
	// maxKeptPivots is the number of pivots after which the basis inverse is made anew, against rounding errors.
	maxKeptPivots = 1000
)

// restart begins from the last basis, for a new demand: dual prices are the same, levels follow from the demand, and the
// dual simplex method (Lemke 1954) removes rows with a negative level. It reports false, and leaves a basis that must be
// reset, if there is no last basis or too little of it can be kept.
//
// Patterns that joined after the last basis may have a positive reduced cost, against the rules of the dual simplex
// method. They count as if it were zero; optimize repairs the rest.
//
// Invariant: on true, level is not negative and inverse is that of the basis. Cost: rows squared, and per repair the
// entries of all patterns.
func (m *masterLP) restart() bool {
	n := len(m.demand)
	if len(m.basis) != n || m.pivots > maxKeptPivots {
		return false
	}
	m.computePrices()
	m.computeLevels()
	for range maxRepairs * n {
		leave := m.mostNegative()
		if leave < 0 {
			for i, x := range m.level {
				m.level[i] = max(0, x)
			}
			return true
		}
		enter, gain := m.repairing(leave)
		if enter == noColumn {
			return false
		}
		m.setDirection(enter)
		if m.scratch[leave] > -tiny {
			return false
		}
		m.pivot(enter, leave, gain)
	}
	return false
}

// computePrices computes the dual prices of the basis.
func (m *masterLP) computePrices() {
	n := len(m.demand)
	m.price = zeroed(m.price, n)
	for i, j := range m.basis {
		if j < 0 {
			continue
		}
		for k, x := range m.inverse[i*n : i*n+n] {
			m.price[k] += float64(m.cost[j] * x)
		}
	}
}

// computeLevels computes the levels of the basis for the demand.
func (m *masterLP) computeLevels() {
	n := len(m.demand)
	m.level = slices.Grow(m.level[:0], n)[:n]
	for i := range m.level {
		m.level[i] = dot(m.inverse[i*n:i*n+n], m.demand)
	}
}

// mostNegative is the row with the most negative level; -1 if there is none.
func (m *masterLP) mostNegative() int {
	row, least := -1, -tiny
	for i, x := range m.level {
		if x < least {
			row, least = i, x
		}
	}
	return row
}

// repairing is the column that takes the place of the basic one in a row with a negative level, and its gain per unit:
// the one that keeps reduced costs of the others non-positive (dual ratio test). Ties go to the largest pivot element.
func (m *masterLP) repairing(leave int) (column int, gain float64) {
	n := len(m.demand)
	row := m.inverse[leave*n : leave*n+n]
	column = noColumn
	least, most := math.Inf(1), 0.0
	try := func(j int, alpha, over float64) {
		if alpha >= -tiny {
			return
		}
		ratio := max(0, over/alpha)
		if ratio < least || ratio == least && -alpha > most {
			column, gain, least, most = j, over, ratio, -alpha
		}
	}
	at := int32(0)
	for j, end := range m.ends {
		alpha, worth := 0.0, 0.0
		for _, e := range m.entries[at:end] {
			alpha += float64(row[e.row] * e.amount)
			worth += float64(m.price[e.row] * e.amount)
		}
		at = end
		try(j, alpha, worth-m.cost[j])
	}
	for k, y := range m.price {
		try(^k, -row[k], -y)
	}
	return column, gain
}
