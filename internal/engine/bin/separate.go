package bin

import (
	"slices"

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

// countedBy returns how many pods of the bin the group counts in each domain that the bin may come up in, with those of DaemonSets.
func (b *Bin) countedBy(g *topology.Group) (n int) {
	for _, h := range b.contents {
		for _, list := range [...][]*topology.Group{h.class.Matches(), h.class.Declares()} {
			if slices.Contains(list, g) {
				n += h.n
			}
		}
	}
	for _, counted := range b.counted {
		n += btoi(counted.Group == g)
	}
	return n
}

// separate is Separate for one bin, which has so many pods that the group counts.
func (s *Set) separate(b *Bin, v topology.View, n int) (chosen bool, checked int) {
	g := v.Group()
	domains := s.topology.DomainsOf(g, b.cands.Requirements())
	return s.choose(b, g, func(d string) bool {
		return slices.ContainsFunc(domains, func(other string) bool { return other != d && v.Reaches(other) && g.Count(other) == n })
	})
}
