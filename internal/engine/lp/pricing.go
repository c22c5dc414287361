package lp

import (
	"cmp"
	"slices"
)

// pivotsPerAxis bounds the pivots of a pricing LP. Stopping early loses value but no correctness: makeFeasible scales
// the duals in any case.
const pivotsPerAxis = 8

// pricingLP is the linear program "the most value that one node of an offering holds", with fractions of pods: a
// fractional knapsack with one constraint per axis. It has few rows, and one column per bucket that the offering can
// hold, or slack of an axis.
//
// It is solved by the revised simplex method with Dantzig's rule. A new solve starts from the last basis: the room is
// the same, so the basis is feasible at any prices. Mostly it is optimal too, and one look at each bucket confirms it.
type pricingLP struct {
	items   []int32 // buckets that the offering can hold
	size    []float64
	basis   []int32 // buckets; ^axis is the slack of an axis in use
	inverse []float64
	level   []float64 // amount of each basic bucket
	pivots  int       // since the last reset
	// worth is the value of the room at the last prices; duals are the prices per unit of each axis that prove it.
	worth float64
	duals []quad
}

// maxPricingPivots is the number of pivots after which the basis inverse is made anew, against rounding errors.
const maxPricingPivots = 1000

// reset returns to the empty room.
func (f *pricingLP) reset() {
	axes := len(f.size)
	f.pivots = 0
	f.basis, f.level = f.basis[:0], append(f.level[:0], f.size...)
	f.inverse = zeroed(f.inverse, axes*axes)
	for axis := range axes {
		f.basis = append(f.basis, int32(^axis))
		f.inverse[axis*axes+axis] = 1
	}
}

// solve maximizes the value of the room's content at these prices of buckets; amounts are those of one unit of each
// bucket.
//
// Invariant: level is not negative. Cost of a pivot: the buckets that the offering can hold, and axes squared.
func (f *pricingLP) solve(price []float64, amounts quads, direction []float64) float64 {
	if f.pivots > maxPricingPivots || len(f.basis) == 0 {
		f.reset()
	}
	for range pivotsPerAxis * (len(f.size) + 1) {
		f.computeDuals(price)
		enter, found := f.entering(price, amounts)
		if !found {
			break
		}
		leave := f.leaving(enter, amounts, direction)
		if leave < 0 {
			break
		}
		f.pivot(enter, leave, direction)
	}
	f.worth = 0
	for i, j := range f.basis {
		if j >= 0 {
			f.worth += float64(price[j] * f.level[i])
		}
	}
	for i := range f.duals {
		for n, y := range f.duals[i] {
			f.duals[i][n] = max(0, y)
		}
	}
	return f.worth
}

// computeDuals sets the duals of the basis at these prices of buckets.
func (f *pricingLP) computeDuals(price []float64) {
	clear(f.duals)
	axes := len(f.size)
	for i, j := range f.basis {
		if j < 0 || price[j] == 0 {
			continue
		}
		for axis, x := range f.inverse[i*axes : (i+1)*axes] {
			f.duals[axis/4][axis%4] += float64(price[j] * x)
		}
	}
}

// entering is the bucket or slack with the most value per unit above what the room for it costs.
func (f *pricingLP) entering(price []float64, amounts quads) (enter int32, found bool) {
	most := tiny * 1e-3
	if amounts.stride == 1 {
		duals := f.duals[0]
		for _, k := range f.items {
			if v := price[k] - amounts.list[k].dot(&duals); v > most {
				enter, most, found = k, v, true
			}
		}
	} else {
		for _, k := range f.items {
			if v := price[k] - dotQuads(amounts.at(int(k)), f.duals); v > most {
				enter, most, found = k, v, true
			}
		}
	}
	for axis := range f.size {
		if v := -f.duals[axis/4][axis%4]; v > most {
			enter, most, found = int32(^axis), v, true
		}
	}
	return enter, found
}

// leaving is the basis row that limits the entering bucket or slack (minimum ratio test); -1 if none does. It sets the
// direction.
func (f *pricingLP) leaving(enter int32, amounts quads, direction []float64) int {
	axes := len(f.size)
	leave, least := -1, 0.0
	for i := range f.basis {
		row, d := f.inverse[i*axes:(i+1)*axes], 0.0
		if enter < 0 {
			d = row[^enter]
		} else {
			need := amounts.at(int(enter))
			for axis, x := range row {
				d += float64(x * need[axis/4][axis%4])
			}
		}
		direction[i] = d
		if d > tiny {
			if ratio := f.level[i] / d; leave < 0 || ratio < least {
				leave, least = i, ratio
			}
		}
	}
	return leave
}

// pivot exchanges the entering bucket or slack with a basic one.
func (f *pricingLP) pivot(enter int32, leave int, direction []float64) {
	axes := len(f.size)
	row := f.inverse[leave*axes : (leave+1)*axes]
	by := 1 / direction[leave]
	for j := range row {
		row[j] *= by
	}
	f.level[leave] *= by
	for i := range f.basis {
		x := direction[i]
		if i == leave || x == 0 {
			continue
		}
		other := f.inverse[i*axes : (i+1)*axes]
		for j, y := range row {
			other[j] -= float64(x * y)
		}
		f.level[i] = max(0, f.level[i]-float64(x*f.level[leave]))
	}
	f.basis[leave] = enter
	f.pivots++
}

// appendContent appends what the room holds in the last solution, in the order of buckets.
func (f *pricingLP) appendContent(out []entry) []entry {
	for i, j := range f.basis {
		if j >= 0 && f.level[i] > tiny {
			out = append(out, entry{j, f.level[i]})
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Compare(a.row, b.row) })
	return out
}
