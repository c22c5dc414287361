package sizing

import (
	"math"

	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

const (
	// typesPerTier sets how many types of about the same price are considered: the best by dual prices, and one
	// alternative in case whole pods pack worse than the LP's fractions.
	typesPerTier = 2
	// tierSpan is the factor of price that one tier of the shortlist spans: a doubling of size is in another tier.
	tierSpan = 1.4
	// filledShare sets how much of the value of room beside a pod that keeps apart counts when its node is chosen: about as much
	// as gets filled (85 % of CPU, 67 % of memory). At 0, diverse workloads in a pool of all types cost 3 to 6 % more than at
	// 0.7 to 0.8; at 0.95, some of those in a general pool do. In between, plans differ by chance.
	filledShare = 0.75
)

// Alone is the size that a node for the first pod costs least as, less what the rest of its room is probably worth. The bin is
// not filled: others may use the room as they come.
//
// Cost: one pass over the candidates.
func (s *Sizer) Alone(o *Opening) (best Size) {
	least, list := math.Inf(1), o.Growth.Candidates().List()
	for k := o.Growth.First(); k < len(list); k++ {
		cand, ti := list[k], o.Bin.Template().TypeOf(list[k])
		if !o.First.Requests().Fits(ti.Room()) || !s.c.Bins.CanBecome(o.Bin, cand) {
			continue
		}
		duals := s.market.Duals(ti, cand)
		cost := cand.Price - filledShare*(costOf(ti.Room(), duals)-costOf(o.First.Requests(), duals))
		if cost < least {
			best, least = Size{chosen: true, index: k, pattern: -1, alone: true, score: cost / o.First.value}, cost
		}
	}
	return best
}

// sizeOption is a type in a candidate list with its price per value that it could hold.
type sizeOption struct {
	index         int
	pricePerValue float64
	pattern       int // of the LP, to follow; -1: none
}

// tier is the best types of about the same price so far, the best first.
type tier struct {
	options [typesPerTier]sizeOption
	n       int
}

// add adds a type, unless all others are better.
func (t *tier) add(o sizeOption) {
	if t.n < typesPerTier {
		t.n++
	} else if o.pricePerValue >= t.options[t.n-1].pricePerValue {
		return
	}
	at := t.n - 1
	for ; at > 0 && o.pricePerValue < t.options[at-1].pricePerValue; at-- {
		t.options[at] = t.options[at-1]
	}
	t.options[at] = o
}

// shortlist picks, from each tier of price, the types with the least price per value by dual prices, and every type for
// which the master LP has a pattern with pods like the first.
//
// Cost: one pass over the candidates.
func (s *Sizer) shortlist(o *Opening) []sizeOption {
	first, program, list := o.First, s.market.Program(), o.Growth.Candidates().List()
	matching := program.MatchingPatterns(first.number)
	var out []sizeOption
	var best tier
	top := 0.0
	for k := o.Growth.First(); k < len(list); k++ {
		cand := list[k]
		ti := o.Bin.Template().TypeOf(cand)
		if !first.Requests().Fits(ti.Room()) || !s.c.Bins.CanBecome(o.Bin, cand) {
			continue
		}
		if cand.Price > top { // candidates are in the order of price, so no later one is in this tier
			out = append(out, best.options[:best.n]...)
			best.n, top = 0, cand.Price*tierSpan
		}
		duals := s.market.Duals(ti, cand)
		if cand.Offering >= 0 {
			for _, pattern := range matching {
				if program.PatternIsOf(pattern, cand.Offering, cand.Price) {
					out = append(out, sizeOption{index: k, pattern: pattern})
				}
			}
		}
		// The first pod gets its place even if it takes more of this room than it is worth: the difference is lost.
		worth := costOf(ti.Room(), duals) - max(0, costOf(first.Requests(), duals)-first.value)
		best.add(sizeOption{k, cand.Price / max(price.LeastRoomValue, worth), -1})
	}
	return append(out, best.options[:best.n]...)
}

// costOf returns what an amount costs at dual prices, in $/h.
func costOf(amount resources.Vec, duals []float64) float64 {
	total := 0.0
	for i, x := range amount {
		total += float64(x) * duals[i]
	}
	return total
}
