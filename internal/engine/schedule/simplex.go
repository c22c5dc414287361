package schedule

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
func (lp *masterLP) reset() {
	n := len(lp.demand)
	lp.basis = lp.basis[:0]
	lp.inverse = zeroed(lp.inverse, n*n)
	lp.level, lp.price, lp.scratch = zeroed(lp.level, n), zeroed(lp.price, n), zeroed(lp.scratch, n)
	for k := range n {
		p := &lp.patterns[k]
		lp.basis = append(lp.basis, k)
		lp.inverse[k*n+k] = 1 / p.amounts[0]
		lp.level[k] = lp.demand[k] / p.amounts[0]
		lp.price[k] = p.cost / p.amounts[0]
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
func (lp *masterLP) optimize() {
	for range maxPivots {
		enter, gain := lp.entering()
		if enter == noColumn {
			return
		}
		leave := lp.leaving(enter)
		if leave < 0 {
			return
		}
		lp.pivot(enter, leave, gain)
	}
}

// noColumn means that no pattern reduces the cost.
const noColumn = int(^uint(0) >> 1)

// entering is the pattern with the largest relative reduced cost, that is gain per dollar, and its gain per unit.
// Relative to the price, since a pattern of a large node has a larger gain than an equally good one of a small node.
func (lp *masterLP) entering() (column int, gain float64) {
	column = noColumn
	most := 1e-7
	lp.flatten()
	at := 0
	for j := range lp.patterns {
		p := &lp.patterns[j]
		worth, end := 0.0, at+len(p.rows)
		for _, e := range lp.sparse[at:end] {
			worth += lp.price[e.row] * e.amount
		}
		at = end
		if rate := (worth - p.cost) / p.cost; rate > most {
			column, gain, most = j, worth-p.cost, rate
		}
	}
	for k, y := range lp.price {
		if -y > tiny && -y > most {
			column, gain, most = ^k, -y, -y
		}
	}
	return column, gain
}

// flatten copies new patterns into one contiguous slice, since entering scans all of them at every pivot.
func (lp *masterLP) flatten() {
	for ; lp.flattened < len(lp.patterns); lp.flattened++ {
		p := &lp.patterns[lp.flattened]
		for i, r := range p.rows {
			lp.sparse = append(lp.sparse, entry{r, p.amounts[i]})
		}
	}
}

// leaving is the basis row that limits the entering pattern (minimum ratio test). It leaves the direction in scratch.
// Ties go to the lowest index, as in Bland's rule.
func (lp *masterLP) leaving(enter int) int {
	n := len(lp.demand)
	d := lp.scratch
	clear(d)
	add := func(row int, amount float64) {
		for i := range d {
			d[i] += lp.inverse[i*n+row] * amount
		}
	}
	if enter < 0 {
		add(^enter, -1)
	} else {
		p := &lp.patterns[enter]
		for i, r := range p.rows {
			add(r, p.amounts[i])
		}
	}
	leave, least := -1, 0.0
	for i, x := range d {
		if x <= tiny {
			continue
		}
		if ratio := lp.level[i] / x; leave < 0 || ratio < least || ratio == least && lp.basis[i] < lp.basis[leave] {
			leave, least = i, ratio
		}
	}
	return leave
}

// pivot exchanges the entering pattern with a basic one: it updates inverse, levels and prices.
func (lp *masterLP) pivot(enter, leave int, gain float64) {
	n := len(lp.demand)
	d := lp.scratch
	row := lp.inverse[leave*n : leave*n+n]
	by := 1 / d[leave]
	for j := range row {
		row[j] *= by
	}
	lp.level[leave] *= by
	for i, x := range d {
		if i == leave || x == 0 {
			continue
		}
		other := lp.inverse[i*n : i*n+n]
		for j, y := range row {
			other[j] -= x * y
		}
		lp.level[i] = max(0, lp.level[i]-x*lp.level[leave])
	}
	for j, y := range row {
		lp.price[j] -= gain * y
	}
	lp.basis[leave] = enter
}

// pricingLP is the linear program "the most value that one room holds", with fractions of items: a fractional knapsack
// with one constraint per resource. It has few rows and one column per item.
type pricingLP struct {
	width   int
	tableau []float64
	basis   []int
}

// solve maximizes values . x where, for each axis, the items' shares of the room add up to at most one. Shares are
// share[axis][item]. It returns the value; amounts gets x, duals gets the value of the room per axis.
//
// It is the tableau simplex method with Dantzig's rule, from the empty room. Cost: at most 8 pivots per row, each of
// rows times columns. Stopping early loses value but no correctness: makeFeasible scales the duals in any case.
func (f *pricingLP) solve(worth []float64, share [][]float64, amounts, duals []float64) float64 {
	items, axes := len(worth), len(share)
	f.width = items + axes + 1
	f.tableau = zeroed(f.tableau, (axes+1)*f.width)
	f.basis = f.basis[:0]
	row := func(i int) []float64 { return f.tableau[i*f.width : (i+1)*f.width] }
	for i := range axes {
		copy(row(i), share[i])
		row(i)[items+i], row(i)[f.width-1] = 1, 1
		f.basis = append(f.basis, items+i)
	}
	objective := row(axes)
	copy(objective, worth)
	for range 8 * (axes + 1) {
		enter, most := -1, tiny*1e-3
		for j, v := range objective[:f.width-1] {
			if v > most {
				enter, most = j, v
			}
		}
		if enter < 0 {
			break
		}
		leave, least := -1, 0.0
		for i := range axes {
			if x := row(i)[enter]; x > tiny {
				if ratio := row(i)[f.width-1] / x; leave < 0 || ratio < least {
					leave, least = i, ratio
				}
			}
		}
		if leave < 0 {
			break
		}
		from := row(leave)
		by := 1 / from[enter]
		for j := range from {
			from[j] *= by
		}
		for i := range axes + 1 {
			to := row(i)
			factor := to[enter]
			if i == leave || factor == 0 {
				continue
			}
			for j, x := range from {
				to[j] -= factor * x
			}
		}
		f.basis[leave] = enter
	}
	clear(amounts)
	for i, j := range f.basis {
		if j < items {
			amounts[j] = row(i)[f.width-1]
		}
	}
	for i := range axes {
		duals[i] = max(0, -objective[items+i])
	}
	return -objective[f.width-1]
}

// valueAt is the value of all demand at these prices of rows.
func (lp *masterLP) valueAt(price []float64) float64 {
	total := 0.0
	for k, d := range lp.demand {
		total += d * price[k]
	}
	return total
}
