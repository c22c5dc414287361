package bin

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// domainChoices are the choices of domains that topology leaves to a bin with these candidates.
type domainChoices struct {
	cands *nodepool.Candidates
	// blocked states why there are none.
	blocked *Refusal
	list    []topology.Choice
	// narrowed are the candidates of each choice; nil until first used.
	narrowed []*nodepool.Candidates
}

// choiceCache has the choices for one pod at one relaxation level, by the candidates of bins: many bins that the pod is
// checked against are alike.
//
// Invariant: topology has counted nothing since the choices were made.
type choiceCache struct {
	changes int // of topology
	level   *podclass.Level
	made    []domainChoices
}

// maxCachedChoices bounds the search for cached choices. New nodes of a queue differ in the few requirements that their
// first pods have in common, so that few sets of candidates occur before the next pod is placed.
const maxCachedChoices = 16

// choicesFor are the choices of domains for a pod in a bin with these candidates. They are valid until the next call.
//
// Cost: a few pointer comparisons for all bins but the first with such candidates.
func (s *Set) choicesFor(b *Bin, a request, cands *nodepool.Candidates) *domainChoices {
	if a.reduced {
		made := s.domainChoices(b, a, cands)
		return &made
	}
	cache := &s.choiceCache
	if cache.changes != s.topology.Changes() || cache.level != a.level || len(cache.made) == maxCachedChoices {
		cache.changes, cache.level, cache.made = s.topology.Changes(), a.level, cache.made[:0]
	}
	// What follows must not depend on the bin: prices do where capacity reservations are left, and affinity does where
	// pods have no domain yet.
	if !s.choicesDependOnBin(a.views) {
		for k := range cache.made {
			if c := &cache.made[k]; c.cands == cands {
				return c
			}
		}
	}
	cache.made = append(cache.made, s.domainChoices(b, a, cands))
	return &cache.made[len(cache.made)-1]
}

// domainChoices are the choices without the cache.
func (s *Set) domainChoices(b *Bin, a request, cands *nodepool.Candidates) domainChoices {
	price := func(r requirement.Set) float64 { return s.lowest(b, b.t.Candidates(r)) }
	list, blocked := s.topology.Choices(topology.Query{Views: a.views, Node: cands.Requirements(), Index: b.index, Price: price})
	if steps := s.topology.TakeChoiceSteps(); a.c.ManyTerms() {
		*s.steps += steps
	}
	made := domainChoices{cands: cands, list: list, narrowed: make([]*nodepool.Candidates, len(list))}
	if blocked != nil {
		made.blocked = s.refusals.of(rejection.Topology, blocked.Permanent())
	}
	return made
}

// choicesDependOnBin reports whether bins with the same candidates may have different choices.
func (s *Set) choicesDependOnBin(views []topology.View) bool {
	if s.slots.Len() > 0 {
		return true
	}
	for i := range views {
		if views[i].DependsOnNode() {
			return true
		}
	}
	return false
}

// chosen are the candidates of a choice.
func (s *Set) chosen(c *domainChoices, k int) *nodepool.Candidates {
	if c.narrowed[k] == nil {
		c.narrowed[k] = c.cands
		if len(c.list[k]) > 0 {
			c.narrowed[k] = c.cands.Template().Candidates(c.cands.Requirements().With(c.list[k]...))
		}
	}
	return c.narrowed[k]
}
