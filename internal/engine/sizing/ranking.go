package sizing

import "github.com/dovetail-k8s/dovetail/internal/engine/resources"

// fitTiers are lower bounds on the ratio of a pod's value to its cost at the dual prices of the type. Pods of an
// earlier tier are packed first. A pod in an optimal pattern has ratio 1 (complementary slackness); 0.985 allows for
// the gap at which the LP stops and for the averages within a bucket.
var fitTiers = [...]float64{0.985, 0.95, 0}

// rankBlock sets how many packing classes of a ranking are skipped at once when none of them fits. Plans for 5000 jobs with
// all different sizes take 7 % longer to solve at 8; at 32 and 64 they take 1 and 4 % less, within the noise.
const rankBlock = 16

// rankings are the orders in which rooms are packed. An order depends on dual prices and the proportions of the room
// only, so all packings between two solutions of the LP share it: several new bins times the types on their shortlists.
// Of jobs with all different sizes, six of seven packings find their order.
type rankings struct {
	// classes are the packing classes of the run, in the order of the queue. Numbers of packing classes are indexes.
	classes []*PackingClass
	// demandOf are the indexes of the demands in the last lookAhead, by number; -1 without one.
	demandOf []int32
	// lookedAt counts how many of the classes a lookAhead of this run has seen, readUpTo how many of them priced knows.
	lookedAt, readUpTo int
	// prices counts the prices that there have been; priced and known are of the last ones.
	prices int
	priced []pricedClass
	// amounts and requests are those of one pod of each priced class, one after the other.
	amounts  []float64
	requests resources.Vec
	known    map[rankingKey]*ranking
	unused   []*ranking // of earlier solutions, for their memory
}

// pricedClass is a packing class that had pods left when it was first ranked at a solution.
type pricedClass struct {
	number              int32
	value, memoryPerCPU float64 // of one pod; bytes per millicore
}

// rankingKey identifies the dual prices, by their place in memory, and the room's bytes per thousandth of a core.
type rankingKey struct {
	duals *float64
	ratio float64
}

// ranking is the order of packing classes for a room: by tier, then by whether the pods are CPU-heavy or memory-heavy
// relative to the room, then the queue's.
type ranking struct {
	upTo  int // index of the first priced class that is not ranked
	lists [len(fitTiers)][2]rankedList
}

// rankedList is one tier and side of a ranking.
type rankedList struct {
	classes []int32 // numbers, ascending
	// least holds what a pod requests at least, per axis, for each rankBlock of the classes.
	least []int64
}

// reset forgets all that is known of an earlier run.
func (r *rankings) reset() {
	r.classes, r.demandOf = r.classes[:0], r.demandOf[:0]
	r.lookedAt = 0
	r.forget()
}

// forget drops all orders and values.
func (r *rankings) forget() {
	r.prices++
	r.readUpTo, r.priced, r.amounts, r.requests = 0, r.priced[:0], r.amounts[:0], r.requests[:0]
	for _, k := range r.known {
		r.unused = append(r.unused, k)
	}
	clear(r.known)
}

// add numbers a packing class.
func (r *rankings) add(f *PackingClass) {
	f.number = len(r.classes)
	r.classes, r.demandOf = append(r.classes, f), append(r.demandOf, -1)
}

// read reads the values of classes that a lookAhead has seen since the last prices.
func (r *rankings) read(cpu, memory int) {
	for ; r.readUpTo < r.lookedAt; r.readUpTo++ {
		p := r.classes[r.readUpTo].First()
		if p == nil {
			continue
		}
		requests := p.Requests()
		ratio := float64(requests[memory]) / float64(max(1, requests[cpu]))
		r.priced = append(r.priced, pricedClass{int32(r.readUpTo), p.value, ratio})
		r.requests = append(r.requests, requests...)
		for _, x := range requests {
			r.amounts = append(r.amounts, float64(x))
		}
	}
}

// orderFor is the order for a room. It has all classes with pods left that a lookAhead has seen.
//
// Cost: none if the order is known; else linear in the classes.
func (s *Sizer) orderFor(key rankingKey, duals []float64) *ranking {
	r := &s.rankings
	r.read(s.c.CPU, s.c.Memory)
	k := r.known[key]
	if k == nil {
		k = r.empty()
		if r.known == nil {
			r.known = map[rankingKey]*ranking{}
		}
		r.known[key] = k
	}
	axes := len(duals)
	// A known order only grows: lookAheads see more of the queue as pods are placed, and numbers ascend in its order.
	for ; k.upTo < len(r.priced); k.upTo++ {
		c, at := &r.priced[k.upTo], k.upTo*axes
		pays, tier := dot(r.amounts[at:at+axes], duals), 0
		for tier < len(fitTiers)-1 && c.value < fitTiers[tier]*pays {
			tier++
		}
		k.lists[tier][btoi(c.memoryPerCPU > key.ratio)].add(c.number, r.requests[at:at+axes])
	}
	return k
}

func dot(a, b []float64) float64 {
	total := 0.0
	b = b[:len(a)]
	for i, x := range a {
		total += x * b[i]
	}
	return total
}

// empty is an order without classes.
func (r *rankings) empty() *ranking {
	if len(r.unused) == 0 {
		return &ranking{}
	}
	k := r.unused[len(r.unused)-1]
	r.unused = r.unused[:len(r.unused)-1]
	k.upTo = 0
	for tier := range k.lists {
		for side := range k.lists[tier] {
			l := &k.lists[tier][side]
			l.classes, l.least = l.classes[:0], l.least[:0]
		}
	}
	return k
}

// add appends a class.
func (l *rankedList) add(number int32, requests resources.Vec) {
	if len(l.classes)%rankBlock == 0 {
		l.least = append(l.least, requests...)
	} else {
		least := l.least[len(l.least)-len(requests):]
		for i, x := range requests {
			least[i] = min(least[i], x)
		}
	}
	l.classes = append(l.classes, number)
}

// blockFits reports whether a pod of the block of the class at an index may fit into a room.
func (l *rankedList) blockFits(at int, room resources.Vec) bool {
	block := at / rankBlock * len(room)
	return resources.Vec(l.least[block : block+len(room)]).Within(room)
}

// rankCursor states how far a packing has come in a list.
type rankCursor struct {
	*rankedList
	at int
}

// next is the first demand from the cursor on that fits; nil if none does. It drops those before it: free room only
// shrinks.
func (p *packer) next(c *rankCursor) *demand {
	for c.at < len(c.classes) {
		if !c.blockFits(c.at, p.free) { // most of a long list is too large for the end of a room
			c.at = (c.at/rankBlock + 1) * rankBlock
			continue
		}
		if d := p.ranked(c); d != nil && d.taken < d.n && d.requests.Within(p.free) {
			return d
		}
		c.at++
	}
	return nil
}

// exhausted reports whether no demand is left from the cursor on that the room's type is cheap enough for, whether it fits or
// not.
func (p *packer) exhausted(c *rankCursor) bool {
	for ; c.at < len(c.classes); c.at++ {
		if p.ranked(c) != nil {
			return false
		}
	}
	return true
}

// ranked is the demand at the cursor; nil if the queue has none, or the room is not for it.
func (p *packer) ranked(c *rankCursor) *demand {
	k := p.demandOf[c.classes[c.at]]
	if k < 0 {
		return nil
	}
	if d := &p.queue[k]; d.quota < 0 && p.allows(d) { // those with a quota were packed first
		return d
	}
	return nil
}

// allows reports whether the demand can use the room's type, at its price.
func (p *packer) allows(d *demand) bool {
	return d.cands.PriceOf(p.cand) <= p.cand.Price && d.mayBeIn(p.zone)
}

// indexDemands records where the demands of the queue are, after removeDemands for the last one.
func (r *rankings) indexDemands(queue []demand) {
	for k := range queue {
		r.demandOf[queue[k].pods.packing.number] = int32(k)
	}
}

// removeDemands forgets where the demands of the queue are.
func (r *rankings) removeDemands(queue []demand) {
	for k := range queue {
		r.demandOf[queue[k].pods.packing.number] = -1
	}
}
