package bin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Add puts the pod into the bin as the growth describes, and counts it in its domains.
func (s *Set) Add(b *Bin, c *podclass.Class, pod *corev1.Pod, g Growth) {
	t := b.t
	if g.cands != b.cands {
		s.narrow(b, g.cands)
		b.room = nil
	}
	if g.reservedLimits != nil {
		t.Reserve(b.reservedLimits, g.reservedLimits)
		b.reservedLimits = g.reservedLimits
	}
	s.slots.Move(b.reservation, g.reservation)
	b.reservation = g.reservation
	s.takeDevices(b, pod, g)
	if len(b.pods) > 0 {
		s.cost -= b.cost
	}
	b.cost = g.cands.List()[g.first].Price
	s.cost += b.cost
	b.first, b.relaxed = g.first, b.relaxed || g.relaxed
	for i, r := range s.requestsIn(b, c) {
		b.total[i] += r
	}
	for _, a := range c.Shared() {
		if b.sharedVolumes == nil {
			b.sharedVolumes = map[volume.Attachment]bool{}
		}
		b.sharedVolumes[a] = true
	}
	b.version++
	s.noteRoom(b)
	b.pods, s.last = append(b.pods, pod), b
	b.ports = append(b.ports, c.Ports().All()...)
	if last := len(b.contents) - 1; last >= 0 && b.contents[last].class == c {
		b.contents[last].n++
	} else if i := slices.IndexFunc(b.contents, func(h classCount) bool { return h.class == c }); i >= 0 {
		b.contents[i].n++
	} else {
		b.contents = append(b.contents, classCount{c, 1})
	}
	s.count(b, c, 1)
	if len(g.avoided) > 0 {
		b.avoided = b.avoided.Union(g.avoided)
	}
	if len(b.pods) == 1 || len(g.avoided) > 0 {
		s.countDaemons(b)
	}
}

// narrow gives the bin narrower candidates and moves the counts of its pods accordingly.
func (s *Set) narrow(b *Bin, cands *nodepool.Candidates) {
	for _, h := range b.contents {
		s.count(b, h.class, -h.n)
	}
	s.uncountDaemons(b)
	b.cands = cands
	for _, h := range b.contents {
		s.count(b, h.class, h.n)
	}
	if len(b.pods) > 0 {
		s.countDaemons(b)
	}
}

// count adds n pods of a class in the bin to all groups that count them.
func (s *Set) count(b *Bin, c *podclass.Class, n int) {
	*s.steps += len(c.Matches()) + len(c.Declares())
	at := b.newNode()
	for _, list := range [...][]*topology.Group{c.Matches(), c.Declares()} {
		for _, g := range list {
			s.topology.CountNew(g, &at, n)
		}
	}
	for _, g := range c.Beside() {
		s.topology.Beside(g, at.Labels, n)
	}
}

// newNode is the bin from the perspective of topology.
func (b *Bin) newNode() topology.NewNode {
	return *b.as(b.cands)
}

// NewNodes are the bins from the perspective of topology, with the instances that hold their pods.
func (s *Set) NewNodes() []topology.NewNode {
	out := make([]topology.NewNode, len(s.all))
	for i, b := range s.all {
		out[i] = b.newNode()
		out[i].Outcomes = &heldOutcomes{Candidates: b.cands, s: s, b: b}
	}
	return out
}

// heldOutcomes are the instances that hold the pods of a bin, while no pod is added. They are found when they are first requested.
type heldOutcomes struct {
	*nodepool.Candidates
	s     *Set
	b     *Bin
	held  []nodepool.Candidate
	known map[string]bool // by what a pod selects
}

// stepsPerOutcome states what it counts to look at the offerings of a type.
const stepsPerOutcome = 8

// MaySatisfy implements topology.Outcomes.
func (h *heldOutcomes) MaySatisfy(pod requirement.Pod) bool {
	key := pod.Selector.Key()
	for _, t := range pod.Required {
		key += "|" + t.Key()
	}
	may, known := h.known[key]
	if known {
		*h.s.steps++
		return may
	}
	if h.known == nil {
		h.held, h.known = h.b.t.Fitting(nil, h.s.ownFit(h.b)), map[string]bool{}
	}
	*h.s.steps += stepsPerOutcome * len(h.held)
	may = h.SomeMaySatisfy(h.held, pod)
	h.known[key] = may
	return may
}
