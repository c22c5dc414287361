package lp

import (
	"cmp"
	"slices"
)

// The constants were compared by 38 plans that search so, 35 of them of diverse pods. The CPU time of the plans is
// the same within 5 %, which is noise, at half and at twice each value.
const (
	// maxSearches bounds the searches of the working set. At 4 and 16, all bounds are the same.
	maxSearches = 8
	// partialGap is the gap at which it stops, a third of that of fullEffort: at that, bounds are up to 0.21 % lower. At
	// 0.002 they are up to 0.12 % lower, at 0.0005 up to 0.06 % higher.
	partialGap = 0.001
	// maxJoining limits how many columns join the working set after a look at all. At 8 and 32, all bounds are the same.
	maxJoining = 16
)

// searchPartially is search with partial pricing: it looks for patterns of a working set of columns, and at all columns
// only after a search that finds better prices. Those that hold more than their price at these join the working set. It
// needs few looks where most columns are no better than others. The working set begins with the columns that are cheapest
// for a bucket alone.
//
// Invariants: those of generateColumns, since a look at all columns makes the duals of all columns feasible. A bound for
// the working set is none for all columns, so only bounds of all columns count.
//
// Cost: maxSearches searches of the working set, and one pricing LP per column of the frontier after each.
func (p *Program) searchPartially(e effort, best float64) (_ float64, improved bool) {
	e.gap = min(e.gap, partialGap)
	working := p.seedColumns()
	center := slices.Clone(p.stabilityCenter)
	proven := quads{p.bestFeasible.stride, slices.Clone(p.bestFeasible.list)}
	for range maxSearches {
		copy(p.stabilityCenter, center)
		patterns := len(p.master.patterns)
		if _, better := p.search(working, e, best); !better {
			if len(p.master.patterns) == patterns {
				break // the master has the best patterns of the working set
			}
			continue
		}
		for _, c := range p.frontier {
			c.pricing.solve(p.stabilityCenter, p.amounts, p.direction)
			p.makeFeasible(c)
		}
		if bound := p.feasiblePrices(p.try, p.frontier); bound > best {
			best, improved = bound, true
			copy(center, p.try)
			copy(proven.list, p.feasible.list)
		}
		if best >= p.master.clampPrices()*(1-e.gap) {
			break
		}
		working = append(working, p.joining(working)...)
		slices.SortFunc(working, func(a, b *column) int { return cmp.Compare(a.index, b.index) })
	}
	copy(p.stabilityCenter, center)
	copy(p.bestFeasible.list, proven.list)
	return best, improved
}

// seedColumns are the columns of the master's first basis.
func (p *Program) seedColumns() []*column {
	var out []*column
	for k := range p.buckets {
		out = append(out, &p.columns[p.master.patterns[k].column])
	}
	slices.SortFunc(out, func(a, b *column) int { return cmp.Compare(a.index, b.index) })
	return slices.Compact(out)
}

// joining are the columns outside the working set that hold more than their price at the last prices: those with the most
// value per price.
func (p *Program) joining(working []*column) []*column {
	in := make(map[*column]bool, len(working))
	for _, c := range working {
		in[c] = true
	}
	var out []*column
	for _, c := range p.frontier {
		if !in[c] && c.pricing.worth > c.price*improves {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *column) int { return cmp.Compare(b.pricing.worth/b.price, a.pricing.worth/a.price) })
	return out[:min(len(out), maxJoining)]
}
