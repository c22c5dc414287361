package bin

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// mayNarrow reports whether a bin that no more pods join can be narrowed: what reservations and minValues need is settled then. What its
// devices need is among its requirements, and they are on each type that is left.
func (b *Bin) mayNarrow() bool { return b.reservation == 0 && !b.cands.HasMinValues() }

// narrowed are the candidates with one more requirement, and where among them the type is that the bin is now; -1 if it is not.
func (b *Bin) narrowed(r requirement.Requirement) (cands *nodepool.Candidates, at int) {
	if have := b.cands.Requirements(); have.Defines(r.Key()) && !have.Get(r.Key()).Overlaps(r) {
		return nil, -1 // not that it has no such label
	}
	cheapest := b.cands.List()[b.first]
	cands = b.t.Candidates(b.cands.Requirements().With(r))
	return cands, slices.IndexFunc(cands.List(), func(c nodepool.Candidate) bool { return c.Type == cheapest.Type && c.Reservation == 0 })
}

// choose chooses the cheapest of the group's domains that suit for a bin that may still come up in several, and that
// stays the type that it is. It returns whether there is one, and how many types it has looked at.
func (s *Set) choose(b *Bin, g *topology.Group, suits func(domain string) bool) (chosen bool, checked int) {
	if _, single := b.cands.Domain(g.Key()); single || !b.mayNarrow() {
		return false, 0
	}
	best, first := (*nodepool.Candidates)(nil), 0
	for _, d := range s.topology.DomainsOf(g, b.cands.Requirements()) {
		if !suits(d) {
			continue
		}
		checked += len(b.t.Types())
		cands, at := b.narrowed(requirement.In(g.Key(), d))
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

// ChooseDomain chooses the cheapest domain of the group for a bin that may still come up in several, and that stays the
// type that it is. It returns whether it did, and how many types it has looked at.
func (s *Set) ChooseDomain(b *Bin, g *topology.Group) (chosen bool, checked int) {
	return s.choose(b, g, func(string) bool { return true })
}
