package sizing

import (
	"math"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// maxTurns bounds how often a large demand alternates with others while one room is packed. Finer turns would balance
// the room a little better, at a cost that grows with the number of pods.
const maxTurns = 64

// packTarget is the type that a new bin is filled as.
type packTarget struct {
	ti   *nodepool.Type
	cand nodepool.Candidate
	// pattern is the LP's pattern to follow; -1 for none.
	pattern int
}

// target is the type that the bin becomes at an index of its candidates.
func (s *Sizer) target(o *Opening, index, pattern int) packTarget {
	cand := o.Growth.Candidates().List()[index]
	return packTarget{o.Bin.Template().TypeOf(cand), cand, pattern}
}

// packer is the state of one call of pack.
type packer struct {
	queue       []demand
	demandOf    []int32 // see rankings
	cpu, memory int
	balance     bool
	cand        nodepool.Candidate
	zone        int // the candidate's
	// touched are the indexes of demands that pods were taken of, with repetitions.
	touched []int32
	// ratio is the room's bytes per thousandth of a core.
	ratio float64
	free  resources.Vec
	// value is that of the pods packed so far.
	value float64
	// content gets the packed pods; nil if only the value matters.
	content *[]Content
	quotas  *hostQuotas
}

// take packs up to most pods of a demand, as many as fit. It is a method and not a closure, which would be allocated
// for each call of pack.
func (p *packer) take(d *demand, most int) {
	p.touched = append(p.touched, p.demandOf[d.pods.packing.number])
	n := int64(min(d.n-d.taken, most))
	if d.quota >= 0 {
		n = min(n, int64(p.quotas.left[d.quota]))
		p.quotas.left[d.quota] -= int(n)
	}
	if n > 1 { // callers have found that one fits
		for i, r := range d.requests {
			if r > 0 {
				n = min(n, p.free[i]/r)
			}
		}
	}
	for i, r := range d.requests {
		p.free[i] -= n * r
	}
	d.taken += int(n)
	p.value += float64(n) * d.value
	if p.content != nil && n > 0 {
		*p.content = append(*p.content, Content{Class: d.pods.packing, Pods: int(n)})
	}
}

// pack fills a room greedily with the first pod and then with whatever fits, and returns the value of it. Pods that
// keep apart on hosts come first, since each node can have few of them. Then come the pods of the pattern, then the
// tiers. Within a tier the next pod is the one that requests relatively more of the resource of which more is left, CPU
// or memory: a room is wasted when one of the two runs out early. Among those, the order is the queue's.
//
// Invariant: free is not negative on any axis that a taken pod requests. No allocation if content is nil, once the
// ranking is known. Cost: linear in the demands that fit, plus a comparison for each rankBlock of the others and maxTurns
// per large demand.
func (s *Sizer) pack(queue []demand, first *Pods, target packTarget, content *[]Content) float64 {
	room, cand := target.ti.Room(), target.cand
	if len(s.free) < len(room) {
		s.free = make(resources.Vec, len(room))
	}
	free := s.free[:len(room)]
	for i, r := range room {
		free[i] = r - first.Requests()[i]
	}
	ratio := math.Inf(1) // all pods count as CPU-heavy
	if s.balance {
		ratio = float64(room[s.c.Memory]) / float64(max(1, room[s.c.CPU]))
	}
	for _, k := range s.touched { // by the last packing, which has mostly taken pods of few demands
		queue[k].taken = 0
	}
	p := packer{
		queue: queue, demandOf: s.rankings.demandOf, cpu: s.c.CPU, memory: s.c.Memory, balance: s.balance,
		cand: cand, zone: s.c.Pools.ZoneOf(cand), touched: s.touched[:0],
		ratio: ratio, free: free, content: content, quotas: &s.quotas,
	}
	p.quotas.left = append(p.quotas.left[:0], p.quotas.most...)
	for _, k := range p.quotas.demands {
		if d := &queue[k]; p.quotas.left[d.quota] > 0 && d.requests.Within(free) && p.allows(d) {
			p.take(d, d.n)
		}
	}
	if target.pattern >= 0 {
		s.packPattern(&p, first, target.pattern)
	}
	duals := s.market.Duals(target.ti, cand)
	order := s.orderFor(rankingKey{&duals[0], ratio}, duals)
	for tier := range order.lists {
		p.packTier(&order.lists[tier])
	}
	s.touched = p.touched
	return p.value
}

// packPattern packs along a pattern of the master LP: of each bucket as much as the pattern has, in whole pods.
func (s *Sizer) packPattern(p *packer, first *Pods, pattern int) {
	content := s.market.Program().Content(pattern, first.number)
	for k := range p.queue {
		d := &p.queue[k]
		if d.quota >= 0 || d.pods.number < 0 { // packed already, or not in the linear program
			continue
		}
		if n := content.Pods(d.pods.number); n > 0 && d.requests.Within(p.free) && p.allows(d) {
			p.take(d, n)
			content.Take(d.pods.number, d.taken)
		}
	}
}

// packTier takes from the queue all pods of a tier that fit, in balance of CPU and memory.
func (p *packer) packTier(lists *[2]rankedList) {
	left := [2]rankCursor{{rankedList: &lists[0]}, {rankedList: &lists[1]}} // the CPU-heavy and the memory-heavy demands
	for {
		side := 0
		if p.balance {
			side = btoi(float64(p.free[p.memory]) > p.ratio*float64(p.free[p.cpu]))
		}
		d := p.next(&left[side])
		if d == nil { // an unbalanced pod is worth more than empty room
			side = 1 - side
			if d = p.next(&left[side]); d == nil {
				return
			}
		}
		if !p.balance || p.exhausted(&left[1-side]) { // nothing to alternate with
			p.take(d, d.n)
			left[side].at++
			continue
		}
		p.take(d, p.untilBalanced(d))
	}
}

// untilBalanced returns how many pods of the demand it takes until the free room leans to the other resource.
func (p *packer) untilBalanced(d *demand) int {
	leans := float64(d.requests[p.memory]) - p.ratio*float64(d.requests[p.cpu])
	if leans == 0 {
		return d.n
	}
	n := math.Ceil((float64(p.free[p.memory]) - p.ratio*float64(p.free[p.cpu])) / leans)
	turn := 1 + float64(d.n/maxTurns)
	d.coarse = d.coarse || turn > n // then the number of pods has decided: see offeredDemand.allows
	return int(min(max(n, turn), float64(d.n)))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
