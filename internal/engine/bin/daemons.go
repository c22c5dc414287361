package bin

import (
	"iter"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// maxDaemonChoices bounds how many combinations of DaemonSets that a pod can follow are tried for one bin.
const maxDaemonChoices = 16

// stepsPerView states what it costs to copy a view and to look at its domains.
const stepsPerView = 3

// typesPerStep is of how many instance types the labels are looked at in the time of a step.
const typesPerStep = 16

// seeDaemons finds the DaemonSets that the pod must not share a node with, and the views that one on the bin's own
// node may satisfy. A node without the label of a view is with no other pod: that suits those that keep apart, and no
// others.
func (s *Set) seeDaemons(b *Bin, a *request, cands *nodepool.Candidates, with []int) {
	t := cands.Template()
	if a.c.ManyTerms() {
		*s.steps += len(with) * (1 + len(t.Types())/typesPerStep)
	}
	for _, i := range with {
		v := &a.views[i]
		switch {
		case s.topology.LacksDomain(v.Key(), cands.Requirements()):
		case v.KeepsApart():
			a.avoided = a.avoided.Union(s.notDisplaced(b, cands, v.Daemons()))
		case v.Type() == topology.Affinity && !t.Lacks(v.Key()) && len(t.DaemonsOn(v.Daemons())) > 0:
			a.following = append(a.following, i)
		}
	}
}

// notDisplaced are those of the DaemonSets of which a pod may come to the bin with the candidates, now or later.
func (s *Set) notDisplaced(b *Bin, cands *nodepool.Candidates, of resources.Bitset) (out resources.Bitset) {
	if !s.topology.KeepsDaemonsOff() {
		return of
	}
	for _, number := range of.Members() {
		if _, rivals := cands.Rivals(number, nil); !s.topology.Displaced(number, rivals, b.as(cands)) {
			out.Add(number)
		}
	}
	return out
}

// seeComing has the pod's spreads count the DaemonSets' pods that come with the bin, where its domain is not known: those of other
// bins are counted already.
func (s *Set) seeComing(b *Bin, a *request, with []int) {
	own := false // the views are not those of the class
	for _, i := range with {
		v := &a.views[i]
		if v.Type() != topology.Spread || !s.mayBring(b, v) {
			continue
		}
		if !own {
			own = true
			if len(s.viewBuf) == 0 || &a.views[0] != &s.viewBuf[0] {
				s.viewBuf = append(s.viewBuf[:0], a.views...)
				a.views = s.viewBuf
			}
			v = &a.views[i]
		}
		v.SetComing(s.comingWith(b, *a, v))
	}
}

// mayBring reports whether DaemonSets' pods come with the bin that the view counts, and that are not counted in its domain yet.
func (s *Set) mayBring(b *Bin, v *topology.View) bool {
	if len(b.t.DaemonsOn(v.Daemons())) == 0 || !v.CountsIn(b.t.ForTopology()) {
		return false
	}
	if len(b.pods) == 0 {
		return true
	}
	_, single := b.cands.Domain(v.Key())
	return !v.OverHosts() && !single
}

// comingWith is which of them come to which domain.
func (s *Set) comingWith(b *Bin, a request, v *topology.View) topology.Coming {
	cands, key, daemons := a.inside, v.Key(), v.Daemons()
	if cands == nil {
		cands = b.cands.Narrow(a.level.InternedFull())
	}
	return func(domain string) (may, surely int) {
		in := cands
		if domain != "" {
			in = b.t.Candidates(cands.Requirements().With(requirement.In(key, domain)))
		}
		at, blocked := b.as(in), s.blockedGroups(b, a)
		return in.MayHave(daemons, blocked, func(d *topology.ComingDaemon) { s.topology.SeeKeepers(d, at) })
	}
}

// as is the bin from the perspective of topology, narrowed to candidates.
func (b *Bin) as(cands *nodepool.Candidates) *topology.NewNode {
	return &topology.NewNode{Index: b.index, Labels: cands.Requirements(), Pool: b.t.ForTopology(), Outcomes: cands}
}

// MayBring reports whether a DaemonSet's pod that the group counts may come with the bin.
func (s *Set) MayBring(b *Bin, g *topology.Group) bool {
	blocked := s.blockedGroups(b, request{})
	return slices.ContainsFunc(b.t.DaemonsOn(g.Daemons()), func(number int) bool {
		may, _ := b.cands.MayGet(number, blocked)
		return may
	})
}

// Brings reports whether such a pod surely comes with it. Affinity only.
func (b *Bin) Brings(g *topology.Group) bool {
	return slices.ContainsFunc(b.counted, func(c topology.CountedDaemon) bool { return c.Group == g })
}

// withoutComing are the request on those types of a fresh bin on which no DaemonSet runs that the pod's spreads count, those without one of
// them, and those where running pods keep some off.
func (s *Set) withoutComing(b *Bin, a request, cands *nodepool.Candidates, with []int) iter.Seq[request] {
	return func(yield func(request) bool) {
		if len(b.pods) > 0 {
			return
		}
		var coming resources.Bitset
		for _, i := range with {
			if v := &a.views[i]; v.HasComing() {
				coming = coming.Union(v.Daemons())
			}
		}
		try := func(avoided resources.Bitset) bool {
			without := a
			without.avoided, without.inside = a.avoided.Union(avoided), cands
			s.seeComing(b, &without, with) // what comes to the other types
			return yield(without)
		}
		on := b.t.DaemonsOn(coming)
		if len(on) > 0 && !try(coming) {
			return
		}
		if len(on) > 1 {
			for _, number := range on[:min(len(on), maxDaemonChoices)] {
				var one resources.Bitset
				if one.Add(number); !try(one) {
					return
				}
			}
		}
		if without, some := s.whereKeptOff(b, a, cands, with); some && (len(on) > 0 || !slices.Equal(without.avoided, a.avoided)) {
			yield(without)
		}
	}
}

// whereKeptOff is the request on those of the candidates that running pods keep DaemonSets' pods off which matter to the pod: those of the
// first of them, and of as many others as can be. It is false if they keep none off, or all candidates.
func (s *Set) whereKeptOff(b *Bin, a request, cands *nodepool.Candidates, with []int) (without request, some bool) {
	var daemons resources.Bitset
	for _, i := range with {
		daemons = daemons.Union(a.views[i].Daemons())
	}
	without = a
	without.inside, without.avoided, without.following = cands, nil, nil
	for _, number := range b.t.DaemonsOn(daemons) {
		if where, kept := s.topology.Inside(number, b.as(without.inside)); kept {
			if inside := without.inside.NarrowBy(where); inside != nil && len(inside.List()) > 0 {
				without.inside = inside
			}
		}
	}
	if without.inside == cands {
		return a, false
	}
	s.seeDaemons(b, &without, without.inside, with)
	s.seeComing(b, &without, with)
	return without, true
}

// bringsSpread reports whether a spread counts DaemonSets' pods that come with the bin.
func (b *Bin) bringsSpread() bool {
	return slices.ContainsFunc(b.counted, func(c topology.CountedDaemon) bool { return c.Group.CountsDaemons() })
}

// DecideDaemons chooses the domains of a bin in which spreads count the DaemonSets' pods that come with it: pods that
// spread over them need to know. It prefers those that hold the pods there. It returns how many types it has looked at.
func (s *Set) DecideDaemons(b *Bin) (checked int) {
	if b == nil || !b.bringsSpread() {
		return 0
	}
	for _, c := range slices.Clone(b.counted) {
		g := c.Group
		if !g.CountsDaemons() || g.OverHosts() {
			continue
		}
		chosen, types := s.choose(b, g, func(d string) bool { return g.KeepsSkewWith(d, 1) })
		if checked += types; !chosen {
			_, types = s.ChooseDomain(b, g)
			checked += types
		}
	}
	return checked
}

// blockedGroups marks the daemon groups that the bin's pods and those of the request cannot share a node with; nil if
// there are none.
func (s *Set) blockedGroups(b *Bin, a request) []bool {
	var blocked []bool
	if a.c == nil {
		blocked = b.t.ConflictingGroups(b.ports, nil)
	} else {
		blocked = b.t.ConflictingGroups(b.ports, a.c.Ports().All())
	}
	if len(b.avoided)+len(a.avoided) > 0 {
		blocked = b.t.MarkDaemons(blocked, b.avoided, a.avoided)
	}
	return blocked
}

// followDaemons grows the bin for a pod that may follow a DaemonSet's pod on the bin's own node: the node must then be
// one that the DaemonSet surely runs on. Views that none satisfies so are left to what other nodes have.
//
// Cost: up to maxDaemonChoices attempts.
func (s *Set) followDaemons(b *Bin, a request, cands *nodepool.Candidates) (Growth, *Refusal) {
	if len(a.following) == 0 {
		return s.allocateDevices(b, a, cands)
	}
	f := following{s: s, b: b, a: a, final: true}
	f.try(0, cands, nil)
	if f.why != nil {
		return Growth{}, &Refusal{code: f.why.code, final: f.final}
	}
	return f.found, nil
}

// following is the search of followDaemons. It has found a growth once done is true and why is nil.
type following struct {
	s        *Set
	b        *Bin
	a        request
	attempts int
	found    Growth
	why      *Refusal
	final    bool
}

// try chooses DaemonSets for the views from the k-th on, and returns whether the search is over. Satisfied are the
// views, by index, with a DaemonSet.
func (f *following) try(k int, cands *nodepool.Candidates, satisfied []int) (done bool) {
	if k == len(f.a.following) {
		return f.attempt(cands, satisfied)
	}
	i := f.a.following[k]
	for _, number := range f.b.t.DaemonsOn(f.a.views[i].Daemons()) {
		if f.b.avoided.Has(number) || f.a.avoided.Has(number) {
			continue
		}
		for _, term := range f.b.t.DaemonTerms(number) {
			with := f.narrowTo(cands, number, term)
			if with == nil {
				continue
			}
			before, now := f.a.avoided, append(slices.Clip(satisfied), i)
			misleading := f.misleading(number, f.a.views[i].Daemons())
			if len(misleading) > 0 {
				f.a.avoided = before.Union(misleading)
			}
			done = f.try(k+1, with, now)
			if f.a.avoided = before; done {
				return true
			}
			if inside := f.whereKeptOff(with, misleading); inside != nil && f.try(k+1, inside, now) {
				return true
			}
		}
	}
	return f.try(k+1, cands, satisfied)
}

// narrowTo are those of the candidates on which the DaemonSet runs by one of its terms, whatever else runs in their domains; nil if there
// are none.
func (f *following) narrowTo(cands *nodepool.Candidates, number int, term requirement.Set) *nodepool.Candidates {
	with := cands.NarrowBy(term)
	if with == nil || len(with.List()) == 0 {
		return nil
	}
	outside, some := f.s.topology.Outside(number, f.b.as(with))
	if some && outside.Len() > 0 {
		with = with.NarrowBy(outside)
	}
	if !some || with == nil || len(with.List()) == 0 {
		return nil
	}
	return with
}

// misleading are the rivals of the DaemonSet that the pod cannot follow: it must not get a node to which one of them may come instead.
func (f *following) misleading(number int, daemons resources.Bitset) (out resources.Bitset) {
	for _, rival := range f.b.t.DaemonsOn(f.b.t.RivalsOf(number)) {
		if !daemons.Has(rival) {
			out.Add(rival)
		}
	}
	return out
}

// whereKeptOff are those of the candidates that running pods keep all of the rivals off; nil if there are none.
func (f *following) whereKeptOff(cands *nodepool.Candidates, rivals resources.Bitset) *nodepool.Candidates {
	inside := (*nodepool.Candidates)(nil)
	for _, rival := range rivals.Members() {
		where, some := f.s.topology.Inside(rival, f.b.as(cands))
		if !some {
			return nil
		}
		if cands = cands.NarrowBy(where); cands == nil || len(cands.List()) == 0 {
			return nil
		}
		inside = cands
	}
	return inside
}

func (f *following) attempt(cands *nodepool.Candidates, satisfied []int) (done bool) {
	a := f.a
	if len(satisfied) > 0 {
		a.views, a.reduced = make([]topology.View, 0, len(f.a.views)), true
		for i, v := range f.a.views {
			if !slices.Contains(satisfied, i) || v.FollowsFounder() {
				a.views = append(a.views, v)
			}
		}
	}
	if a.c.ManyTerms() {
		*f.s.steps += stepsPerView * len(f.a.views)
	}
	f.attempts++
	g, why := f.s.allocateDevices(f.b, a, cands)
	f.found, f.why = g, why
	if why == nil {
		return true
	}
	f.final = f.final && why.final
	if f.attempts == maxDaemonChoices {
		f.final = false
		return true
	}
	return false
}

// countDaemons counts the DaemonSets' pods that come with the bin, in place of those counted before.
func (s *Set) countDaemons(b *Bin) {
	of := s.topology.CountedDaemons()
	if len(of) == 0 {
		return
	}
	s.uncountDaemons(b)
	marked := s.blockedGroups(b, request{})
	at := b.newNode()
	for _, coming := range b.cands.Coming(of, marked) {
		b.counted = append(b.counted, s.topology.CountDaemon(coming, &at)...)
	}
}

// uncountDaemons is the reverse of countDaemons.
func (s *Set) uncountDaemons(b *Bin) {
	if len(b.counted) == 0 {
		return
	}
	at := b.newNode()
	for _, c := range b.counted {
		s.topology.UncountDaemon(c, &at)
	}
	b.counted = b.counted[:0]
}
