package schedule

import "slices"

// covering is the linear program "buy the cheapest mix of patterns that covers every row's demand". A pattern is a
// fraction of each row's demand that one node holds, at that node's price. Patterns come a few at a time; the prices of
// rows (the dual solution) say which patterns would be worth having.
//
// It is solved by the revised simplex method. Pattern k of the first len(demand) ones covers row k alone: together they
// are a basis to start from.
type masterLP struct {
	demand    []float64
	patterns  []pattern
	sparse    []entry // of the first flat patterns, in their order
	flattened int
	basis     []int // patterns; ^k is the surplus of row k
	inverse   []float64
	level     []float64 // of the basis
	price     []float64 // of a unit of each row
	scratch   []float64
}

// entry is what a pattern has of one row.
type entry struct {
	row    int
	amount float64
}

// pattern is what a node of a column holds of some rows.
type pattern struct {
	rows    []int
	amounts []float64
	cost    float64
	column  int
}

const (
	// tiny is what counts as nothing, in programs whose numbers are scaled to about one.
	tiny = 1e-9
	// maxPivots bounds the work between two rounds of patterns. Wherever it ends, the prices can be used.
	maxPivots = 200
)

// reset goes back to the patterns of one row each.
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

// optimise finds the best mix of the patterns that are known.
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

const noColumn = int(^uint(0) >> 1)

// entering is the column that improves the mix most per dollar, and by how much per unit.
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

// flatten puts the patterns that are new side by side in memory, for they are gone through often.
func (lp *masterLP) flatten() {
	for ; lp.flattened < len(lp.patterns); lp.flattened++ {
		p := &lp.patterns[lp.flattened]
		for i, r := range p.rows {
			lp.sparse = append(lp.sparse, entry{r, p.amounts[i]})
		}
	}
}

// leaving is the row of the basis that limits the column; its direction is left in scratch.
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

// filling is the linear program "the most worth that one room holds", with fractions of items allowed: few rows, one for
// each resource, and a column for each item.
type pricingLP struct {
	width   int
	tableau []float64
	basis   []int
}

// solve maximises worth . x where, for each axis, the items' shares of the room sum up to one at most. Shares are
// share[axis][item]. It returns the value; amounts gets x, rent what the room is worth per axis.
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

// worth is what all demand comes to at these prices of rows.
func (lp *masterLP) valueAt(price []float64) float64 {
	total := 0.0
	for k, d := range lp.demand {
		total += d * price[k]
	}
	return total
}
