package bin

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// request is one pod to add to a bin.
type request struct {
	c     *podclass.Class
	level *podclass.Level
	views []topology.View
	mode  Mode
	// avoided are the DaemonSets that the pod keeps apart from, by number; following are the views, by index, that one on the same node
	// may satisfy. reduced is true where such views are left out.
	avoided   resources.Bitset
	following []int
	reduced   bool
	// inside are those of the candidates that the pod is to have; nil for all of them.
	inside *nodepool.Candidates
}

// Grow computes what the bin becomes if it takes a pod of the class at this relaxation level.
//
// Cost: amortized O(axes) for a refusal by size, which is checked first; a table lookup for requirements; then a walk
// along the price list. No allocation unless topology has several domains to choose from.
func (s *Set) Grow(b *Bin, c *podclass.Class, level *podclass.Level, u Mode) (Growth, *Refusal) {
	*s.steps++
	if level.Blocked().Has(b.t.Index()) {
		return Growth{}, s.refusals.of(rejection.Taint, true)
	}
	if u.bounded() && b.room != nil && !s.requestsIn(b, c).FitsBeside(b.total, b.room) {
		return Growth{}, s.refusals.of(rejection.Resources, true)
	}
	if c.Ports().Len() > 0 && c.Ports().Clash(b.ports) {
		return Growth{}, &Refusal{code: rejection.HostPort, final: true}
	}
	cands := b.cands.Narrow(level.InternedFull())
	if cands == nil {
		return Growth{}, &s.refusals.requirement
	}
	a := request{c: c, level: level, views: s.views(b, c, level), mode: u}
	*s.steps += c.ViewSteps(level)
	with := c.SortedViews(level).WithDaemons()
	if len(with) > 0 {
		s.seeDaemons(b, &a, cands, with)
		s.seeComing(b, &a, with)
	}
	g, why := s.growWith(b, a, cands)
	if why == nil || len(with) == 0 {
		return g, why
	}
	never := why.final
	for without := range s.withoutComing(b, a, cands, with) {
		grown, refused := s.growWith(b, without, without.inside)
		if refused == nil {
			return grown, nil
		}
		never = never && refused.final
	}
	if why.final != never { // types without these DaemonSets may take the pod later
		why = &Refusal{code: why.code}
	}
	return g, why
}

// growWith is Grow for one of the node's possibilities of volumes.
func (s *Set) growWith(b *Bin, a request, cands *nodepool.Candidates) (Growth, *Refusal) {
	c := a.c
	never, why := true, &s.refusals.requirement
	for i, alt := range c.Volumes() {
		with := cands
		if alt.Set.Len() > 0 {
			if with = cands.Narrow(alt); with == nil {
				why = &s.refusals.requirement
				if i == len(c.Volumes())-1 {
					return Growth{}, &Refusal{code: rejection.Volume, final: never}
				}
				continue
			}
		}
		var g Growth
		if g, why = s.followDaemons(b, a, with); why == nil {
			return g, nil
		}
		never = never && why.final
	}
	if never != why.final || len(c.Volumes()) > 1 && why.domain != "" { // the other volumes' domains may open before
		why = &Refusal{code: why.code, final: never}
	}
	return Growth{}, why
}

// views are the class's views of its groups, from the perspective of the bin. They are valid until the next call.
func (s *Set) views(b *Bin, c *podclass.Class, level *podclass.Level) []topology.View {
	views := c.Views(level)
	for _, i := range c.SortedViews(level).WithUndecided() {
		if views[i].SeesUndecided() {
			return s.viewsWithUndecided(b, c, views)
		}
	}
	return views
}

// viewsWithUndecided are the views with the undecided pods in the bin.
func (s *Set) viewsWithUndecided(b *Bin, c *podclass.Class, views []topology.View) []topology.View {
	s.viewBuf = append(s.viewBuf[:0], views...)
	for i := range s.viewBuf {
		v := &s.viewBuf[i]
		if !v.SeesUndecided() {
			continue
		}
		if v.Type() == topology.Affinity {
			v.SetUndecided(b.undecidedOf(v.Group()))
		} else if _, decided := b.cands.Domain(v.Key()); !decided {
			v.SetUndecided(b.undecidedBefore(v.Group(), c))
		}
	}
	return s.viewBuf
}

// chooseDomains picks topology domains for the views, and finds the types that are left there.
func (s *Set) chooseDomains(b *Bin, a request, cands *nodepool.Candidates) (Growth, *Refusal) {
	if len(a.views) == 0 {
		return s.cheapestFit(b, a, cands)
	}
	open := false // some label can still have several values
	for i := range a.views {
		v := &a.views[i]
		if v.OverHosts() {
			if !v.AllowsNew(b.index) {
				return Growth{}, s.refusals.of(rejection.Topology, v.Permanent())
			}
		} else if domain, single := cands.Domain(v.Key()); !single {
			open = true
		} else if !v.Allows(domain) {
			s.refusals.domain = Refusal{code: rejection.Topology, view: i, domain: domain}
			return Growth{}, &s.refusals.domain
		}
	}
	if !open {
		g, why := s.cheapestFit(b, a, cands)
		if why != nil && why.final && !s.onlyHosts(a.views) && why.code != rejection.Resources {
			why = &Refusal{code: why.code}
		}
		return g, why
	}
	choices := s.choicesFor(b, a, cands)
	if choices.blocked != nil {
		return Growth{}, choices.blocked
	}
	var last *Refusal
	for k := range choices.list {
		if a.c.ManyTerms() {
			*s.steps += stepsPerChoice
		}
		g, why := s.cheapestFit(b, a, s.chosen(choices, k))
		if why == nil {
			return g, nil
		}
		if last = why; why.final {
			last = &Refusal{code: why.code}
		}
	}
	return Growth{}, last
}

// stepsPerChoice states what a choice of domains costs: the instance types that are left, and a walk along them.
const stepsPerChoice = 64

func (s *Set) onlyHosts(views []topology.View) bool {
	return !slices.ContainsFunc(views, func(v topology.View) bool { return !v.OverHosts() })
}

// cheapestFit finds the cheapest type that holds the bin's pods and one more, within limits, minValues and the ceiling.
//
// Invariant: bins only grow, so the search starts at b.first when the candidates are the same.
func (s *Set) cheapestFit(b *Bin, a request, cands *nodepool.Candidates) (Growth, *Refusal) {
	t, asked := b.t, s.requestsIn(b, a.c)
	first := 0
	if cands == b.cands {
		first = b.first
	}
	limit := b.ceilingIn(a.mode)
	if a.mode.bounded() {
		if cands != b.cands && b.target.Type >= 0 && cands.PriceOf(b.target) > limit {
			// The pod's requirements raise the price of the type that the bin was sized for, for all pods in it.
			return Growth{}, s.refusals.of(rejection.Resources, true)
		}
	}
	blocked := s.blockedGroups(b, a)
	limited := t.HasLimits()
	overLimit, taken := false, false
	for ; first < len(cands.List()); first++ {
		cand := cands.List()[first]
		if cand.Price > limit {
			break
		}
		ti := t.TypeOf(cand)
		if !asked.FitsBeside(b.total, ti.Room()) || ti.BlockedBy(blocked) {
			continue
		}
		if limited && !t.WithinLimits(ti, b.reservedLimits) {
			overLimit = true
			continue
		}
		if !s.reservationAllows(b, cand, a.mode) {
			taken = taken || cand.Reservation != 0
			continue
		}
		g := Growth{cands: cands, first: first, reservation: cand.Reservation, avoided: a.avoided}
		if limited {
			g.reservedLimits = ti.AgainstLimits()
		}
		if cands.HasMinValues() {
			grown, why := s.cheapestFitMinValues(b, a, g, blocked)
			if why != nil && cand.Reservation != 0 {
				continue // types outside reservations leave more choice
			}
			return grown, why
		}
		return g, nil
	}
	switch {
	case overLimit:
		return Growth{}, s.refusals.of(rejection.Limits, false)
	case taken:
		return Growth{}, &Refusal{code: rejection.Reserved}
	case a.mode == Explained:
		return Growth{}, s.noType(b, a, cands.Requirements(), b.total.Plus(asked))
	case a.mode.bounded() && cands == b.cands:
		s.measureRoom(b)
	}
	// Bins never get emptier, but a bin on a choice of domains may have others.
	return Growth{}, s.refusals.of(rejection.Resources, true)
}

// cheapestFitMinValues is cheapestFit for requirements with minValues: the types left must have enough distinct values.
func (s *Set) cheapestFitMinValues(b *Bin, a request, g Growth, blocked []bool) (Growth, *Refusal) {
	t, cands := b.t, g.cands
	q := b.fitQuery(g, b.total.Plus(s.requestsIn(b, a.c)), blocked)
	types := t.Fitting(nil, q)
	if g.reservation != 0 && t.ChoosesOfferings(cands.Requirements()) {
		return Growth{}, &Refusal{code: rejection.MinValues, final: true}
	}
	missed, keep := t.MinValuesShortfall(cands.Requirements(), types)
	if len(missed) > 0 {
		if !s.bestEffort || len(b.pods) > 0 || g.reservation != 0 {
			return Growth{}, &Refusal{code: rejection.MinValues, final: true}
		}
		g.relaxed = true
		g.cands = t.Candidates(nodepool.WithLoweredMinValues(cands.Requirements(), missed)) // the same types in the same order
	}
	if t.HasVariants() {
		claim := nodepool.ClaimQuery{FitQuery: q, Types: types, Requirements: g.cands.Requirements()}
		reserved, reached := t.LimitsForMinValues(claim, keep)
		if !reached && !s.bestEffort {
			return Growth{}, &Refusal{code: rejection.MinValues}
		}
		if t.HasLimits() {
			g.reservedLimits = reserved
		}
	} else if t.HasLimits() {
		g.reservedLimits = t.LargestOf(types[:keep])
	}
	return g, nil
}

// noType finds the rule by which no instance type holds the requests.
func (s *Set) noType(b *Bin, a request, reqs requirement.Set, total resources.Vec) *Refusal {
	t := b.t
	if len(b.pods) > 0 {
		return s.refusals.of(rejection.Resources, true)
	}
	code := rejection.Requirement
	ports, blocked := t.ConflictingGroups(b.ports, a.c.Ports().All()), s.blockedGroups(b, a)
	for i := range t.Types() {
		ti := &t.Types()[i]
		if !reqs.Overlaps(ti.Requirements) {
			continue
		}
		if code == rejection.Requirement {
			code = rejection.Resources
		}
		if !total.Fits(ti.Room()) {
			continue
		}
		switch {
		case !ti.BlockedBy(blocked):
			return &Refusal{code: rejection.Offering, final: true}
		case !ti.BlockedBy(ports):
			code = rejection.Topology
		case code != rejection.Topology:
			code = rejection.HostPort
		}
	}
	return &Refusal{code: code, final: true}
}
