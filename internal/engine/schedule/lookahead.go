package schedule

import (
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

const (
	// maxLookahead is how many packing classes of the queue are considered for a new node. It bounds the cost of
	// opening a bin in queues of jobs with all different sizes. The first thousand in order of size leave enough choice
	// to fill any node.
	maxLookahead = 1000
	// typesPerTier is how many types of about the same price are considered: the best by dual prices, and one
	// alternative in case whole pods pack worse than the LP's fractions.
	typesPerTier = 2
	// nearlyEqual is the ratio up to which two sizes cost the same for what they hold; the larger makes fewer nodes.
	nearlyEqual = 1.002
	// patternBonus is how much better a packing along a pattern of the master LP is taken to be than it looks: it
	// leaves a queue that packs as well as before. At 2 % a pattern wins unless a greedy packing is clearly better.
	patternBonus = 1.02
	// tierSpan is the factor of price that one tier of the shortlist spans: a doubling of size is in another tier.
	tierSpan = 1.4
)

// demand is what is left of a packing class while a new node is filled.
type demand struct {
	class *class // the first class of it
	n     int
	cands *nodepool.Candidates // the candidates where its pods fit together with the first pod
	// value of one pod
	value float64
	// taken is how many are in the room that is being packed.
	taken int
	// quota is an index into hostQuotas that bounds, together with other classes, the pods on one node; -1 if there is
	// none.
	quota int
	// coarse is true once n has decided how many pods one turn takes: see untilBalanced.
	coarse   bool
	requests resources.Vec // of one pod
}

// mayBeIn reports whether the pods can run in the zone, given by its number. A node that could be in several zones is
// filled for the one of its cheapest offering: pods of different zones cannot share it.
func (d *demand) mayBeIn(zone int) bool {
	return d.cands.Zone() == 0 || zone == 0 || d.cands.Zone() == zone
}

// hostQuotas is how many pods one node can have of each group that spreads or separates pods over hosts.
type hostQuotas struct {
	groups []*topology.Group
	most   []int // for an empty node
	left   []int
	// demands are the indexes of the demands with a quota.
	demands []int32
}

// of is the quota that the class's pods share; -1 if there is none.
func (q *hostQuotas) of(first, c *class, level *podclass.Level) int {
	views := c.SortedViews(level).Own()
	for i := range views {
		v := &views[i]
		if !v.OverHosts() || v.Type() != topology.Spread && v.Type() != topology.AntiAffinity {
			continue
		}
		if k := slices.Index(q.groups, v.Group()); k >= 0 {
			return k
		}
		most := 1
		if v.Type() == topology.Spread {
			most = v.Group().MaxSkew()
		}
		if slices.Contains(first.Matches(), v.Group()) {
			most--
		}
		q.groups, q.most = append(q.groups, v.Group()), append(q.most, most)
		return len(q.groups) - 1
	}
	return -1
}

// plannedPods is n pods of a packing class that a bin was sized for. With a nil into they may go wherever there is
// room.
type plannedPods struct {
	class *packingClass
	n     int
	into  *bin.Bin
}

// sizing is the size chosen for a new bin: a type, by its index in the candidate list.
type sizing struct {
	index int
	// pattern is the one to follow; -1 for none.
	pattern int
	// score is the price per value of what the node would hold; +Inf if no size was chosen.
	score float64
}

// noSize is no size chosen.
var noSize = sizing{-1, -1, math.Inf(1)}

// chooseSize decides what a new bin becomes: of the shortlist, the type with the least price per value of what it would
// hold. It changes nothing about the bin.
//
// Cost: one pack per entry of the shortlist, that is types per tier times tiers, plus one per pattern.
func (sv *solver) chooseSize(b *bin.Bin, first *class, g bin.Growth) sizing {
	if sv.budget.LookaheadSteps > 0 && sv.steps >= sv.budget.LookaheadSteps || first.value <= 0 || sv.strategy.plain() {
		return noSize
	}
	sv.resolveForRest()
	if first.value <= 0 {
		return noSize
	}
	if sv.sizedAlone(first) {
		return sv.sizeAlone(b, first, g)
	}
	queue := sv.lookAhead(b, first, g)
	if sv.reuseSizing(queue, first, g) {
		return sv.sized.sizing
	}
	sv.startSizing(queue, first, g)
	best := noSize
	for _, pick := range sv.shortlist(b, first, g) {
		cand := g.Candidates().List()[pick.index]
		packed := first.value + sv.pack(queue, first, packTarget{b.Template().TypeOf(cand), cand, pick.pattern}, nil)
		sv.steps += len(queue)
		sv.sized.addPacking(queue, sv.touched)
		score := cand.Price / packed
		if pick.pattern >= 0 {
			score /= patternBonus
		}
		if score < best.score/nearlyEqual ||
			score <= best.score*nearlyEqual && (best.index < 0 || cand.Price > g.Candidates().List()[best.index].Price) {
			best = sizing{pick.index, pick.pattern, min(best.score, score)}
		}
	}
	sv.sized.finish(queue, best)
	return best
}

// sizeBin gives a new bin the chosen size, and returns what to pack besides the first pod.
//
// Invariant: content fits on the chosen type together with the first pod.
func (sv *solver) sizeBin(b *bin.Bin, first *class, g bin.Growth, size sizing) []plannedPods {
	if size.index < 0 {
		return nil
	}
	cand := g.Candidates().List()[size.index]
	b.Size(cand)
	if sv.sizedAlone(first) {
		return nil
	}
	queue := sv.demands
	if sv.demandsFor != b {
		queue = sv.lookAhead(b, first, g)
	}
	if size.pattern >= 0 {
		sv.prices.market.Program().LaunchPattern(size.pattern)
	}
	var content []plannedPods
	sv.pack(queue, first, packTarget{b.Template().TypeOf(cand), cand, size.pattern}, &content)
	return content
}

// packTarget is the type that a new bin is filled as.
type packTarget struct {
	ti   *nodepool.Type
	cand nodepool.Candidate
	// pattern is the LP's pattern to follow; -1 for none.
	pattern int
}

// packer is the state of one call of pack.
type packer struct {
	queue    []demand
	demandOf []int32 // see rankings
	cand     nodepool.Candidate
	zone     int // the candidate's
	// touched are the indexes of demands that pods were taken of, with repetitions.
	touched []int32
	// ratio is the room's bytes per thousandth of a core.
	ratio float64
	free  resources.Vec
	// value is that of the pods packed so far.
	value float64
	// content gets the packed pods; nil if only the value matters.
	content *[]plannedPods
	quotas  *hostQuotas
}

// take packs up to most pods of a demand, as many as fit. It is a method and not a closure, which would be allocated
// for each call of pack.
func (p *packer) take(d *demand, most int) {
	p.touched = append(p.touched, p.demandOf[d.class.packingClass.number])
	n := int64(min(d.n-d.taken, most))
	if d.quota >= 0 {
		n = min(n, int64(p.quotas.left[d.quota]))
		p.quotas.left[d.quota] -= int(n)
	}
	if n > 1 {
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
		*p.content = append(*p.content, plannedPods{class: d.class.packingClass, n: int(n)})
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
func (sv *solver) pack(queue []demand, first *class, target packTarget, content *[]plannedPods) float64 {
	room, cand := target.ti.Room(), target.cand
	free := sv.freeBuf[:len(room)]
	for i, r := range room {
		free[i] = r - first.Requests()[i]
	}
	ratio := math.Inf(1) // all pods count as CPU-heavy
	if sv.strategy == balanced {
		ratio = float64(room[sv.memory]) / float64(max(1, room[sv.cpu]))
	}
	for _, k := range sv.touched { // by the last packing
		queue[k].taken = 0
	}
	p := packer{
		queue: queue, demandOf: sv.rankings.demandOf, cand: cand, zone: sv.pools.ZoneOf(cand), touched: sv.touched[:0],
		ratio: ratio, free: free, content: content, quotas: &sv.quotas,
	}
	p.quotas.left = append(p.quotas.left[:0], p.quotas.most...)
	for _, k := range p.quotas.demands {
		if d := &queue[k]; p.quotas.left[d.quota] > 0 && d.requests.Within(free) && p.allows(d) {
			p.take(d, d.n)
		}
	}
	if target.pattern >= 0 {
		sv.packPattern(&p, first, target.pattern)
	}
	duals := sv.prices.market.Duals(target.ti, cand)
	order := sv.orderFor(rankingKey{&duals[0], ratio}, duals)
	for tier := range order.lists {
		sv.packTier(&p, &order.lists[tier])
	}
	sv.touched = p.touched
	return p.value
}

// packPattern packs along a pattern of the master LP: of each bucket as much as the pattern has, in whole pods.
func (sv *solver) packPattern(p *packer, first *class, pattern int) {
	content := sv.prices.market.Program().Content(pattern, first.lpPods)
	for k := range p.queue {
		d := &p.queue[k]
		if d.quota >= 0 || d.class.lpPods < 0 {
			continue
		}
		if n := content.Pods(d.class.lpPods); n > 0 && d.requests.Within(p.free) && p.allows(d) {
			p.take(d, n)
			content.Take(d.class.lpPods, d.taken)
		}
	}
}

// packTier takes from the queue all pods of a tier that fit, in balance of CPU and memory.
func (sv *solver) packTier(p *packer, lists *[2]rankedList) {
	left := [2]rankCursor{{rankedList: &lists[0]}, {rankedList: &lists[1]}} // the CPU-heavy and the memory-heavy demands
	for {
		side := 0
		if sv.strategy == balanced {
			side = btoi(float64(p.free[sv.memory]) > p.ratio*float64(p.free[sv.cpu]))
		}
		d := p.next(&left[side])
		if d == nil {
			side = 1 - side
			if d = p.next(&left[side]); d == nil {
				return
			}
		}
		if sv.strategy != balanced || p.exhausted(&left[1-side]) {
			p.take(d, d.n)
			left[side].at++
			continue
		}
		p.take(d, sv.untilBalanced(d, p.ratio, p.free))
	}
}

// maxTurns bounds how often a large demand alternates with others while one room is packed. Finer turns would balance
// the room a little better, at a cost that grows with the number of pods.
const maxTurns = 64

// untilBalanced is how many pods of the demand it takes until the free room leans to the other resource.
func (sv *solver) untilBalanced(d *demand, ratio float64, free resources.Vec) int {
	leans := float64(d.requests[sv.memory]) - ratio*float64(d.requests[sv.cpu])
	if leans == 0 {
		return d.n
	}
	n := math.Ceil((float64(free[sv.memory]) - ratio*float64(free[sv.cpu])) / leans)
	turn := 1 + float64(d.n/maxTurns)
	d.coarse = d.coarse || turn > n
	return int(min(max(n, turn), float64(d.n)))
}

// sizeOption is a type in a candidate list with its price per value that it could hold.
type sizeOption struct {
	index         int
	pricePerValue float64
	pattern       int // of the LP, to follow; -1: none
}

// shortlist picks, from each tier of price, the types with the least price per value by dual prices, and every type for
// which the master LP has a pattern with pods like the first.
//
// Cost: one pass over the candidates.
func (sv *solver) shortlist(b *bin.Bin, first *class, g bin.Growth) []sizeOption {
	m := sv.prices.market
	matching := m.Program().MatchingPatterns(first.lpPods)
	var out []sizeOption
	var tier [typesPerTier]sizeOption // the best of the tier so far
	n := 0
	top := 0.0
	for k := g.First(); k < len(g.Candidates().List()); k++ {
		cand := g.Candidates().List()[k]
		ti := b.Template().TypeOf(cand)
		if !first.Requests().Fits(ti.Room()) || !sv.bins.CanBecome(b, cand) {
			continue
		}
		if cand.Price > top {
			out = append(out, tier[:n]...)
			n, top = 0, cand.Price*tierSpan
		}
		duals := vec64(m.Duals(ti, cand))
		if cand.Offering >= 0 {
			for _, pattern := range matching {
				if m.Program().PatternIsOf(pattern, cand.Offering, cand.Price) {
					out = append(out, sizeOption{index: k, pattern: pattern})
				}
			}
		}
		r := sizeOption{k, cand.Price / max(price.LeastRoomValue, duals.cost(ti.Room())-max(0, duals.cost(first.Requests())-first.value)), -1}
		if n < typesPerTier {
			n++
		} else if r.pricePerValue >= tier[n-1].pricePerValue {
			continue
		}
		at := n - 1
		for ; at > 0 && r.pricePerValue < tier[at-1].pricePerValue; at-- {
			tier[at] = tier[at-1]
		}
		tier[at] = r
	}
	return append(out, tier[:n]...)
}

// vec64 is a floating-point number per axis.
type vec64 []float64

func (v vec64) dot(o vec64) float64 {
	total := 0.0
	o = o[:len(v)]
	for i, x := range v {
		total += x * o[i]
	}
	return total
}

// cost is what an amount costs at these prices.
func (v vec64) cost(amount resources.Vec) float64 {
	total := 0.0
	for i, x := range amount {
		total += float64(x) * v[i]
	}
	return total
}

// lookAhead lists the packing classes of the queue that could join the bin, as far as is known without placing them.
func (sv *solver) lookAhead(b *bin.Bin, first *class, g bin.Growth) []demand {
	sv.rankings.removeDemands(sv.demands)
	out := sv.demands[:0]
	sv.quotas.groups, sv.quotas.most, sv.quotas.demands = sv.quotas.groups[:0], sv.quotas.most[:0], sv.quotas.demands[:0]
	seen, placed := 0, 0
	for _, f := range sv.waiting {
		c := f.first()
		if c == nil {
			placed++
			continue
		}
		if seen++; seen > maxLookahead {
			break
		}
		sv.rankings.lookedAt = max(sv.rankings.lookedAt, f.number+1)
		open := sv.firstOpenLevel(c)
		if open < 0 || !sv.pricing.fills(c) || c.Levels()[open].Blocked().Has(b.Template().Index()) {
			continue
		}
		level := c.Levels()[open]
		cands := g.Candidates().Narrow(level.InternedFull())
		if cands != nil && len(c.Volumes()) == 1 {
			cands = cands.Narrow(c.Volumes()[0])
		}
		if cands == nil || !affinityAllows(first, c, level, cands) {
			continue
		}
		n, started := f.unplaced, f == first.packingClass
		if started {
			n--
		}
		if n = min(n, maxPerNode(c, level, started)); n > 0 {
			quota := sv.quotas.of(first, c, level)
			if quota >= 0 {
				sv.quotas.demands = append(sv.quotas.demands, int32(len(out)))
			}
			out = append(out, demand{class: c, n: n, cands: cands, value: c.value, quota: quota, requests: c.Requests()})
		}
	}
	sv.rankings.indexDemands(out)
	sv.demands, sv.demandsFor, sv.touched = out, b, sv.touched[:0]
	if placed > maxLookahead {
		sv.waiting = slices.DeleteFunc(sv.waiting, func(f *packingClass) bool { return f.unplaced == 0 })
	}
	return out
}

// affinityAllows reports whether pods that must be near others could go to the domain of the candidates, after the
// first pod.
func affinityAllows(first, c *class, level *podclass.Level, cands *nodepool.Candidates) bool {
	views := c.SortedViews(level).Domains()
	for i := range views {
		v := &views[i]
		if v.Type() == topology.Affinity && slices.Contains(first.Matches(), v.Group()) {
			continue
		}
		if domain, ok := cands.Domain(v.Key()); ok && !v.Allows(domain) {
			return false
		}
	}
	return true
}

// maxPerNode bounds how many more pods of the class one new node can hold, by the topology constraints of the class.
func maxPerNode(c *class, level *podclass.Level, started bool) int {
	most := math.MaxInt
	views := c.SortedViews(level).Own()
	for i := range views {
		v := &views[i]
		switch {
		case v.Type() == topology.AntiAffinity:
			most = 1
		case v.Type() == topology.Spread && v.OverHosts():
			most = min(most, v.Group().MaxSkew())
		case v.Type() == topology.Spread:
			if n := len(v.Group().Usable()); n > 0 {
				most = min(most, (c.packingClass.unplaced+n-1)/n)
			}
		}
	}
	if c.Ports().Len() > 0 {
		most = 1
	}
	if started && most != math.MaxInt {
		most--
	}
	return most
}
