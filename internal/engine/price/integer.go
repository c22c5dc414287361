package price

import (
	"cmp"
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// WholeNodes is how many new nodes a plan may have for its bound to count whole nodes: of many, the last one is a small part.
const WholeNodes = 40

const (
	// coverSteps bounds the search of one cover. It takes some hundred steps as a rule.
	coverSteps = 4000
	// coverSets bounds how many sets of large pods are covered by count.
	coverSets = 6
	// coverClasses bounds how many demand classes are covered one by one.
	coverClasses = 8
	// coverKinds is from how many kinds of pods on only a gap above coverGap is worth the time.
	coverKinds, coverGap = 100, 1.01
	// coverRounding keeps sums of floating point from proving what is not so.
	coverRounding = 1e-9
)

// Integer raises a bound by counting whole nodes, of which the linear program uses parts.
//
// Give each pod a weight, and each offering a capacity such that no node of it holds pods of more weight. Then the nodes of any plan have
// together at least the capacity of all its pods' weights, and the least price of whole nodes with that capacity is a lower bound: a
// covering knapsack, which branch and bound solves exactly or gives up. Weights are
//
//   - one resource, or resources at dual prices: the capacity is that of the room (a surrogate relaxation);
//   - 1 for each of the largest pods and 0 for others: the capacity is how many of the smallest of them fit, rounded down.
//
// Pods that share no offering share no node, so that the bounds of such parts of a plan add up. Existing nodes take pods with as much
// weight as the free room of those that have room for any pod of the part.
//
// Cost: offerings and existing nodes times weights, and coverSteps per weight and part. Reservations are not known, so there must be none.
func (b *Bound) Integer(p *RuledPlan, bound float64) float64 {
	if b.m.program == nil || b.slots.Len() > 0 || p.Nodes > WholeNodes || p.Nodes == 0 || p.Nominated {
		return bound
	}
	if len(p.Scheduled) > coverKinds && p.Cost <= bound*coverGap {
		return bound
	}
	if scheduled := b.countsOf(p); !slices.Equal(b.whole.scheduled, scheduled) {
		total := 0.0
		for _, part := range b.parts(p) {
			total += max(part.least(b, p.Cost), b.leastApart(part, p.Cost))
		}
		b.whole = ruleBound{scheduled, min(total, p.Cost)}
	}
	return max(bound, b.whole.value)
}

// leastApart is the least that some pods of a part cost which share no offering with each other: those of the demand classes that cost most
// alone, without what is between them.
func (b *Bound) leastApart(of *part, ceiling float64) float64 {
	byClass := map[int]*part{}
	var all []*part
	for _, s := range of.pods {
		class := b.m.pods[b.m.numbers[s.Pods]].Class
		if byClass[class] == nil {
			at := &part{existing: of.existing}
			for _, o := range of.offerings {
				if o.Classes.Has(class) {
					at.offerings = append(at.offerings, o)
				}
			}
			byClass[class] = at
			all = append(all, at)
		}
		byClass[class].pods = append(byClass[class].pods, s)
	}
	if len(all) == 1 || len(all) > coverClasses {
		return 0
	}
	least := make(map[*part]float64, len(all))
	for _, at := range all {
		least[at] = at.least(b, ceiling)
	}
	slices.SortStableFunc(all, func(x, y *part) int { return cmp.Compare(least[y], least[x]) })
	total, taken := 0.0, map[*lp.Offering]bool{}
	for _, at := range all {
		if slices.ContainsFunc(at.offerings, func(o *lp.Offering) bool { return taken[o] }) {
			continue
		}
		total += least[at]
		for _, o := range at.offerings {
			taken[o] = true
		}
	}
	return total
}

// part is pods that may share nodes, and no node with others.
type part struct {
	pods      []*Scheduled
	offerings []*lp.Offering
	// existing has the free room of the existing nodes with room for any of the pods.
	existing []resources.Vec
}

// parts splits the pods by the offerings that they can use.
func (b *Bound) parts(p *RuledPlan) (out []*part) {
	var used lp.ClassSet
	for i := range p.Scheduled {
		if n := b.m.numbers[p.Scheduled[i].Pods]; n >= 0 {
			used.Add(b.m.pods[n].Class)
		}
	}
	of, parts := b.connected(used), map[int]*part{}
	for i := range p.Scheduled {
		n := b.m.numbers[p.Scheduled[i].Pods]
		if n < 0 {
			continue
		}
		first := of[b.m.pods[n].Class]
		if parts[first] == nil {
			parts[first] = &part{}
			out = append(out, parts[first])
		}
		parts[first].pods = append(parts[first].pods, &p.Scheduled[i])
	}
	for i := range b.m.offers {
		o := &b.m.offers[i]
		for c := range b.m.classes {
			if used.Has(c) && o.Classes.Has(c) {
				parts[of[c]].offerings = append(parts[of[c]].offerings, o)
				break
			}
		}
	}
	for _, at := range out {
		for i := range p.Existing {
			free := p.Existing[i].Free
			if slices.ContainsFunc(at.pods, func(s *Scheduled) bool { return s.Requests.Fits(free) }) {
				at.existing = append(at.existing, free)
			}
		}
	}
	return out
}

// connected returns, for each demand class, one of those that it shares offerings with, at first or second hand: the same for all of them.
func (b *Bound) connected(used lp.ClassSet) []int {
	of := make([]int, len(b.m.classes))
	for c := range of {
		of[c] = c
	}
	for i := range b.m.offers {
		first := -1
		for c := range of {
			switch {
			case !used.Has(c) || !b.m.offers[i].Classes.Has(c):
			case first < 0:
				first = of[c]
			case of[c] != first:
				from := of[c]
				for k := range of {
					if of[k] == from {
						of[k] = first
					}
				}
			}
		}
	}
	return of
}

// least is the least that whole nodes for the pods cost, at most ceiling.
func (p *part) least(b *Bound, ceiling float64) float64 {
	out := p.leastByCount(ceiling)
	for _, u := range p.weights(b) {
		need := 0.0
		for _, s := range p.pods {
			need += float64(s.Count) * cost(s.Requests, u)
		}
		for _, free := range p.existing {
			need -= positive(free, u)
		}
		pieces := make([]piece, 0, len(p.offerings))
		for _, o := range p.offerings {
			pieces = append(pieces, piece{positive(o.Room, u), o.Price})
		}
		out = max(out, cheapestCover(pieces, need, ceiling))
	}
	return out
}

// positive is the weight of room, of which no axis is overdrawn.
func positive(room []int64, u []float64) float64 {
	total := 0.0
	for i, r := range room {
		total += float64(max(r, 0)) * u[i]
	}
	return total
}

// weights are those of resources: each alone, all by dual prices, and all by their shares of what is requested.
func (p *part) weights(b *Bound) [][]float64 {
	out := [][]float64{b.m.roomDuals}
	shares := make([]float64, b.m.axes)
	for axis := range shares {
		sum := 0.0
		for _, s := range p.pods {
			sum += float64(s.Count) * float64(s.Requests[axis])
		}
		if sum <= 0 {
			continue
		}
		alone := make([]float64, b.m.axes)
		alone[axis], shares[axis] = 1, 1/sum
		out = append(out, alone)
	}
	return append(out, shares)
}

// leastByCount covers sets of the most valuable pods by their number.
func (p *part) leastByCount(ceiling float64) float64 {
	sorted := slices.Clone(p.pods)
	slices.SortFunc(sorted, func(x, y *Scheduled) int { // those that are equal in all of this are alike
		if x.Value != y.Value {
			return cmp.Compare(y.Value, x.Value)
		}
		return cmp.Or(slices.Compare(y.Requests, x.Requests), cmp.Compare(y.Count, x.Count))
	})
	out, n := 0.0, 0
	least := slices.Clone(sorted[0].Requests)
	every := max(1, (len(sorted)+coverSets-1)/coverSets)
	for i, s := range sorted {
		n += s.Count
		for axis, r := range s.Requests {
			least[axis] = min(least[axis], r)
		}
		if i != len(sorted)-1 && i%every != 0 {
			continue
		}
		left := n
		for _, free := range p.existing {
			left -= min(least.TimesIn(free), left)
		}
		pieces := make([]piece, 0, len(p.offerings))
		for _, o := range p.offerings {
			if holds := least.TimesIn(o.Room); holds > 0 {
				pieces = append(pieces, piece{float64(min(holds, n)), o.Price})
			}
		}
		out = max(out, cheapestCover(pieces, float64(left), ceiling))
	}
	return out
}

// piece is a node with its capacity, and its price in $/h.
type piece struct{ capacity, price float64 }

// cheapestCover is the least price of any number of the pieces with the capacity that is needed: at most ceiling; 0 if nothing is needed,
// or the search was given up.
func cheapestCover(pieces []piece, need, ceiling float64) float64 {
	if need <= 0 {
		return 0
	}
	need *= 1 - coverRounding
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(b.capacity, a.capacity))
	})
	front := pieces[:0:0]
	for _, x := range pieces { // each more expensive one holds more
		if x.capacity > 0 && (len(front) == 0 || x.capacity > front[len(front)-1].capacity) {
			front = append(front, piece{min(x.capacity, need), x.price})
		}
	}
	if len(front) == 0 {
		return 0 // the weights state nothing of these pods
	}
	slices.SortStableFunc(front, func(a, b piece) int { return cmp.Compare(a.price*b.capacity, b.price*a.capacity) })
	s := coverSearch{pieces: front, best: ceiling}
	if s.search(0, need, 0); s.steps > coverSteps {
		return 0
	}
	return s.best * (1 - coverRounding)
}

// coverSearch is branch and bound: how many of each piece, the cheapest per capacity first.
type coverSearch struct {
	pieces []piece
	best   float64
	steps  int
}

func (s *coverSearch) search(i int, need, price float64) {
	if s.steps++; s.steps > coverSteps {
		return
	}
	if need <= 0 {
		s.best = min(s.best, price)
		return
	}
	if i == len(s.pieces) {
		return
	}
	x := s.pieces[i]
	for n := math.Ceil(need / x.capacity); n >= 0; n-- {
		rest, so := need-n*x.capacity, price+n*x.price
		if rest > 0 { // with fewer of this piece, the rest costs more
			if i+1 == len(s.pieces) {
				return
			}
			if next := s.pieces[i+1]; so+rest/next.capacity*next.price >= s.best {
				return
			}
		}
		s.search(i+1, rest, so)
	}
}
