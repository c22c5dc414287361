package lp

// pricingBuffers are what solvePricing reuses from call to call.
type pricingBuffers struct {
	items                  []int // buckets
	values, amounts, duals []float64
	shares                 [][]float64
}

// solvePricing computes the most value that a node of the offering holds at these prices of buckets, and the dual
// prices that prove it. The content is in buffers.items and buffers.amounts until the next call.
func (p *Program) solvePricing(c *column, price []float64) float64 {
	f := &p.buffers
	f.items, f.values = f.items[:0], f.values[:0]
	if f.shares == nil {
		f.shares = make([][]float64, len(p.axesInUse))
	}
	for i := range f.shares {
		f.shares[i] = f.shares[i][:0]
	}
	for k := range p.buckets {
		b := &p.buckets[k]
		if price[k] <= 0 || !c.classes.Has(b.class) || !b.usesOnlyAxesOf(c) {
			continue
		}
		f.items, f.values = append(f.items, k), append(f.values, price[k])
		for axis, x := range b.amount {
			share := 0.0
			if x > 0 {
				share = x / c.size[axis]
			}
			f.shares[axis] = append(f.shares[axis], share)
		}
	}
	f.amounts = zeroed(f.amounts, len(f.items))
	f.duals = zeroed(f.duals, len(p.axesInUse))
	c.packedValue = p.pricing.solve(f)
	for axis, i := range p.axesInUse {
		c.duals[i] = 0
		if c.size[axis] > 0 {
			c.duals[i] = f.duals[axis] / c.size[axis] / p.scale[i]
		}
	}
	return c.packedValue
}

// pattern is the content of the offering's node in the last solution of solvePricing.
func (p *Program) pattern(c *column) pattern {
	out := pattern{cost: c.price, column: c.index}
	for i, x := range p.buffers.amounts {
		if x > tiny {
			out.rows, out.amounts = append(out.rows, p.buffers.items[i]), append(out.amounts, x)
		}
	}
	return out
}

// pivotsPerAxis bounds the pivots of a pricing LP. Stopping early loses value but no correctness: makeFeasible scales
// the duals in any case.
const pivotsPerAxis = 8

// pricingLP is the linear program "the most value that one room holds", with fractions of items: a fractional knapsack
// with one constraint per resource. It has few rows and one column per item.
type pricingLP struct {
	width   int
	tableau []float64
	basis   []int
}

// solve maximizes values . x where, for each axis, the items' shares of the room add up to at most one. Shares are
// shares[axis][item]. It returns the value; amounts gets x, duals gets the value of the room per axis.
//
// It is the tableau simplex method with Dantzig's rule, from the empty room. Cost: at most pivotsPerAxis pivots per row,
// each of rows times columns.
func (f *pricingLP) solve(in *pricingBuffers) float64 {
	items, axes := len(in.values), len(in.shares)
	f.setUp(in)
	objective := f.row(axes)
	for range pivotsPerAxis * (axes + 1) {
		enter := f.entering()
		if enter < 0 {
			break
		}
		leave := f.leaving(enter)
		if leave < 0 {
			break
		}
		f.pivot(enter, leave)
	}
	for i, j := range f.basis {
		if j < items {
			in.amounts[j] = f.row(i)[f.width-1]
		}
	}
	for i := range axes {
		in.duals[i] = max(0, -objective[items+i])
	}
	return -objective[f.width-1]
}

// row is a row of the tableau; the last one is the objective.
func (f *pricingLP) row(i int) []float64 { return f.tableau[i*f.width : (i+1)*f.width] }

// setUp makes the tableau of the empty room: one row per axis, with the slack of each axis as the basis.
func (f *pricingLP) setUp(in *pricingBuffers) {
	items, axes := len(in.values), len(in.shares)
	f.width = items + axes + 1
	f.tableau = zeroed(f.tableau, (axes+1)*f.width)
	f.basis = f.basis[:0]
	for i := range axes {
		copy(f.row(i), in.shares[i])
		f.row(i)[items+i], f.row(i)[f.width-1] = 1, 1
		f.basis = append(f.basis, items+i)
	}
	copy(f.row(axes), in.values)
}

// entering is the column with the most value per unit; -1 if none improves the value.
func (f *pricingLP) entering() int {
	enter, most := -1, tiny*1e-3
	objective := f.row(len(f.basis))
	for j, v := range objective[:f.width-1] {
		if v > most {
			enter, most = j, v
		}
	}
	return enter
}

// leaving is the row that limits the entering column (minimum ratio test); -1 if none does.
func (f *pricingLP) leaving(enter int) int {
	leave, least := -1, 0.0
	for i := range f.basis {
		if x := f.row(i)[enter]; x > tiny {
			if ratio := f.row(i)[f.width-1] / x; leave < 0 || ratio < least {
				leave, least = i, ratio
			}
		}
	}
	return leave
}

// pivot makes the entering column basic in the leaving row.
func (f *pricingLP) pivot(enter, leave int) {
	from := f.row(leave)
	by := 1 / from[enter]
	for j := range from {
		from[j] *= by
	}
	for i := range len(f.basis) + 1 {
		to := f.row(i)
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
