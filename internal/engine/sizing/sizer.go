package sizing

import (
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

const (
	// nearlyEqual is the ratio up to which two sizes cost the same for what they hold; the larger makes fewer nodes.
	nearlyEqual = 1.002
	// patternBonus sets how much better a packing along a pattern of the master LP is taken to be than it looks: it
	// leaves a queue that packs as well as before. At 2 % a pattern wins unless a greedy packing is clearly better.
	patternBonus = 1.02
)

// Config describes what sizing depends on. All fields are required.
type Config struct {
	Pools *nodepool.Models
	Bins  *bin.Set
	Slots *reservation.Slots
	// CPU and Memory are indexes of the axes that are kept in balance.
	CPU, Memory int
	// Level is the relaxation level at which a new node could be filled with some of the pods, as far as is known; nil
	// leaves them out.
	Level func(p *Pods) *podclass.Level
	// Steps counts the packing classes that each packing looks at.
	Steps *int
}

// Sizer sizes the new nodes of a run. Its zero state is that of no run: see Start.
type Sizer struct {
	c      Config
	market *price.Market
	// balance keeps CPU and memory in balance; else rooms are filled in the order of the queue.
	balance bool
	run     int

	// waiting are the packing classes with pods left.
	waiting    []*PackingClass
	demands    []demand // of the last lookAhead
	demandsFor *bin.Bin // the bin of the last lookAhead
	touched    []int32  // the demands that the last packing took pods of, by index
	rankings   rankings
	quotas     hostQuotas
	// last and spare are the last decisions: see Alternate.
	last, spare decision
	free        resources.Vec // buffer of pack
}

// NewSizer has no pods.
func NewSizer(c Config) *Sizer { return &Sizer{c: c} }

// Start begins a run with the pods that wait, by class, in the order of the queue.
func (s *Sizer) Start(balance bool) {
	s.run++
	s.balance, s.waiting = balance, s.waiting[:0]
	s.demands, s.demandsFor = s.demands[:0], nil
	s.rankings.reset()
}

// Add adds the pods of a class to the run, in the order of the queue.
func (s *Sizer) Add(p *Pods) {
	f := p.packing
	if f.run != s.run {
		f.run, f.members, f.next, f.left = s.run, f.members[:0], 0, 0
		s.waiting = append(s.waiting, f)
		s.rankings.add(f)
	}
	f.members = append(f.members, p)
	f.left += p.left
}

// Reprice states that the market has new prices, or that there is another market.
func (s *Sizer) Reprice(m *price.Market) {
	s.market = m
	s.rankings.forget()
}

// Waiting are the classes with pods left, by packing class. It drops packing classes without any.
func (s *Sizer) Waiting() []*Pods {
	var out []*Pods
	s.waiting = slices.DeleteFunc(s.waiting, func(f *PackingClass) bool { return f.left == 0 })
	for _, f := range s.waiting {
		for _, p := range f.members[f.next:] {
			if p.left > 0 {
				out = append(out, p)
			}
		}
	}
	return out
}

// Opening is a new bin, before it is filled, with the first pod for it.
type Opening struct {
	Bin *bin.Bin
	// Growth holds what the bin becomes with the first pod, which is one of First.
	Growth bin.Growth
	First  *Pods
}

// Size is the size chosen for a new bin: a type, by its index in the candidate list. Its zero value is no size.
type Size struct {
	chosen bool
	index  int
	// pattern is the one to follow; -1 for none.
	pattern int
	// alone is true if the bin is not filled: see Alone.
	alone bool
	// score is the price per value of what the node would hold.
	score float64
}

// None reports whether no size was chosen.
func (z *Size) None() bool { return !z.chosen }

// PricePerValue is that of what the node would hold, without a unit; +Inf for no size.
func (z *Size) PricePerValue() float64 {
	if !z.chosen {
		return math.Inf(1)
	}
	return z.score
}

// Choose decides what a new bin becomes: of the shortlist, the type with the least price per value of what it would
// hold. It changes nothing about the bin.
//
// Cost: one packing per entry of the shortlist, that is types per tier times tiers, plus one per pattern.
func (s *Sizer) Choose(o *Opening) Size {
	queue := s.lookAhead(o) // holds compares these demands, and Fill packs them
	if s.holds(queue, o) {
		return s.last.size
	}
	s.begin(queue, o)
	var best Size
	list := o.Growth.Candidates().List()
	for _, pick := range s.shortlist(o) {
		cand := list[pick.index]
		packed := o.First.value + s.pack(queue, o.First, s.target(o, pick.index, pick.pattern), nil)
		*s.c.Steps += len(queue)
		s.last.addPacking(queue, s.touched)
		score := cand.Price / packed
		if pick.pattern >= 0 {
			score /= patternBonus
		}
		if !best.chosen || score < best.score/nearlyEqual ||
			score <= best.score*nearlyEqual && cand.Price > list[best.index].Price {
			// The least score so far stays the reference: a chain of larger types, each nearly equal to the one before, must
			// not drift from it.
			best = Size{chosen: true, index: pick.index, pattern: pick.pattern, score: min(best.PricePerValue(), score)}
		}
	}
	s.last.finish(queue, best)
	return best
}

// Alternate exchanges the last decision for the one before the last Alternate. A caller that compares two sorts of sizes for
// each new node calls it around those of one sort: of each sort, decisions mostly repeat.
func (s *Sizer) Alternate() { s.last, s.spare = s.spare, s.last }

// Content is some pods of a packing class that a bin was sized for.
type Content struct {
	Class *PackingClass
	Pods  int
}

// AddTo adds the requests of the pods to a total.
func (c *Content) AddTo(total resources.Vec) {
	for axis, r := range c.Class.requests() {
		total[axis] += r * int64(c.Pods)
	}
}

// Fill gives a new bin the chosen size, and returns what to pack besides the first pod.
//
// Invariant: the content fits on the chosen type together with the first pod.
func (s *Sizer) Fill(o *Opening, z Size) []Content {
	if !z.chosen {
		return nil
	}
	o.Bin.Size(o.Growth.Candidates().List()[z.index])
	if z.alone {
		return nil
	}
	queue := s.demandsOf(o)
	if z.pattern >= 0 { // the solution uses a pattern for so many nodes, and the rest of the queue has others
		s.market.Program().LaunchPattern(z.pattern)
	}
	var content []Content
	s.pack(queue, o.First, s.target(o, z.index, z.pattern), &content)
	return content
}

// Preview is the price of a bin of the size, and the value of what it would hold, both in $/h. It visits the pods that it
// would hold besides the first.
func (s *Sizer) Preview(o *Opening, z Size, visit func(p *Pods, n int)) (price, value float64) {
	queue := s.demandsOf(o)
	target := s.target(o, z.index, z.pattern)
	value = o.First.value + s.pack(queue, o.First, target, nil)
	for k := range queue {
		if d := &queue[k]; d.taken > 0 {
			visit(d.pods, d.taken)
		}
	}
	return target.cand.Price, value
}
