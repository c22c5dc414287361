package bin

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// maxDaemonChoices bounds how many combinations of DaemonSets that a pod can follow are tried for one bin.
const maxDaemonChoices = 16

// stepsPerView is what it costs to copy a view and to look at its domains.
const stepsPerView = 3

// typesPerStep is of how many instance types the labels are looked at in the time of a step.
const typesPerStep = 16

// seeDaemons finds the DaemonSets that the pod must not share a node with, and the views that one on the bin's own
// node may satisfy. A node without the label of a view is with no other pod: that suits those that keep apart, and no
// others.
func (s *Set) seeDaemons(a *request, cands *nodepool.Candidates, with []int) {
	t := cands.Template()
	if a.c.ManyTerms() {
		*s.steps += len(with) * (1 + len(t.Types())/typesPerStep)
	}
	for _, i := range with {
		v := &a.views[i]
		switch {
		case s.topology.LacksDomain(v.Key(), cands.Requirements()):
		case v.KeepsApart():
			a.avoided = a.avoided.Union(v.Daemons())
		case v.Type() == topology.Affinity && !t.Lacks(v.Key()) && len(t.DaemonsOn(v.Daemons())) > 0:
			a.following = append(a.following, i)
		}
	}
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
			if with := narrowTo(cands, term); with != nil && f.try(k+1, with, append(slices.Clip(satisfied), i)) {
				return true
			}
		}
	}
	return f.try(k+1, cands, satisfied)
}

func narrowTo(cands *nodepool.Candidates, term requirement.Set) *nodepool.Candidates {
	with := cands.NarrowBy(term)
	if with == nil || len(with.List()) == 0 {
		return nil
	}
	return with
}

func (f *following) attempt(cands *nodepool.Candidates, satisfied []int) (done bool) {
	a := f.a
	if len(satisfied) > 0 {
		a.views, a.reduced = make([]topology.View, 0, len(f.a.views)), true
		for i, v := range f.a.views {
			if !slices.Contains(satisfied, i) {
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
	for _, number := range b.t.DaemonsOn(of) {
		if may, surely := b.cands.MayGet(number, marked); may {
			b.counted = append(b.counted, s.topology.CountDaemon(number, &at, surely)...)
		}
	}
}

// uncountDaemons is the reverse of countDaemons.
func (s *Set) uncountDaemons(b *Bin) {
	if len(b.counted) == 0 {
		return
	}
	at := b.newNode()
	for _, g := range b.counted {
		s.topology.CountNew(g, &at, -1)
	}
	b.counted = b.counted[:0]
}
