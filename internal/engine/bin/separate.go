package bin

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Separate chooses the domain of a bin that may still come up in several, after no more pods fit, for a pod that keeps apart from the
// bin's pods, or they from it: the others become free for it. The bin stays the type that it is, in its cheapest domain that leaves
// one for the pod. It returns whether it chose one, and how many types it has looked at.
func (s *Set) Separate(v topology.View) (chosen bool, checked int) {
	for _, b := range s.all {
		n := b.countedBy(v.Group())
		if n == 0 {
			continue
		}
		if chosen, types := s.separate(b, v, n); chosen {
			return true, checked + types
		}
		checked += len(b.t.Types())
	}
	return false, checked
}

// countedBy is how many pods of the bin the group counts in each domain that the bin may come up in, with those of DaemonSets.
func (b *Bin) countedBy(g *topology.Group) (n int) {
	for _, h := range b.contents {
		for _, list := range [...][]*topology.Group{h.class.Matches(), h.class.Declares()} {
			if slices.Contains(list, g) {
				n += h.n
			}
		}
	}
	for _, counted := range b.counted {
		n += btoi(counted == g)
	}
	return n
}

// separate is Separate for one bin, which has so many pods that the group counts.
func (s *Set) separate(b *Bin, v topology.View, n int) (chosen bool, checked int) {
	key, g := v.Key(), v.Group()
	if _, single := b.cands.Domain(key); single || b.reservation != 0 || b.cands.HasMinValues() || len(b.deviceOptions) > 0 {
		return false, 0
	}
	domains := s.topology.DomainsOf(g, b.cands.Requirements())
	leavesOther := func(d string) bool {
		return slices.ContainsFunc(domains, func(other string) bool { return other != d && v.Reaches(other) && g.Count(other) == n })
	}
	cheapest, best, first := b.cands.List()[b.first], (*nodepool.Candidates)(nil), 0
	for _, d := range domains {
		if !leavesOther(d) {
			continue
		}
		checked += len(b.t.Types())
		cands := b.t.Candidates(b.cands.Requirements().With(requirement.In(key, d)))
		at := slices.IndexFunc(cands.List(), func(c nodepool.Candidate) bool { return c.Type == cheapest.Type && c.Reservation == 0 })
		if at >= 0 && (best == nil || cands.List()[at].Price < best.List()[first].Price) {
			best, first = cands, at
		}
	}
	if best == nil {
		return false, checked
	}
	s.become(b, best, first)
	return true, checked
}

// become narrows the bin to candidates, of which the first is its type.
func (s *Set) become(b *Bin, cands *nodepool.Candidates, first int) {
	s.narrow(b, cands)
	price := cands.List()[first].Price
	s.cost += price - b.cost
	b.first, b.room, b.cost = first, nil, price
	s.noteRoom(b)
}
