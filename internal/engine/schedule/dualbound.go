package schedule

import (
	"encoding/binary"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// market is what nodes cost as pods see it, and what pods are worth on it.
//
// Each column, which is an offering, has a rent per unit of each resource, such that a whole node's rents add up to no
// more than its price. A pod is worth the least rent that it would pay on any column that it can use and fits. Then
// the pods of any node, however it is packed, are worth no more than its price, so all pods together are worth
// no more than any plan costs: a lower bound, by weak duality of the linear program "buy fractions of nodes, fill them
// with fractions of pods". It holds for any such rents. Good ones come from that program, solved over buckets of like
// pods by column generation: a covering chooses among patterns, and for each column a filling finds the pattern worth most.
type lpRelaxation struct {
	axes          int
	demandClasses []*demandClass
	offerings     []lpOffering
	// representative is the column that each offering is, or by which it is dominated; -1 where nobody can use it.
	representative []int32
	axesInUse      []int // axes on which anything is asked for
	scale          vec64 // the largest room, per axis
	master         masterLP
	buckets        []bucket
	ready          bool // the program has been set up
	pricing        pricingLP
	// memory of rate
	shares                 [][]float64
	values, amounts, duals []float64
	items                  []int
	matchingPatterns       []int // of recipes
	patternLeft            []float64
	active                 []*lpOffering
	stabilityCenter        []float64 // the best sound prices of buckets

	// roomDuals is, per axis, no less than what a unit is worth to anybody whom a node that exists can hold.
	roomDuals vec64
	// ahead is the worth of the whole queue, appraised that of what was left at the last appraisal.
	queueValue, lastValue float64
	// existing is the worth of all room on nodes that exist.
	existingRoomValue float64
}

// clientele is pods that can use the same offerings.
type demandClass struct {
	index       int
	offerings   bitset // over all templates' types
	maxRequests vec    // per axis, the most that one of its pods asks for
	usable      []int  // columns
}

// column is an offering: a node that costs price and may hold pods of clients only.
type lpOffering struct {
	index         int
	room          vec
	size          vec64 // room in units of scale, on live axes
	price         float64
	demandClasses uint32
	// value is the most worth that the room can hold at the rents that follow, by the last appraisal; rent is per unit of
	// all axes, such that every pod is worth no more than it pays; sound is rent scaled up to the price.
	packedValue          float64
	duals, feasibleDuals vec64
	bestFeasible         vec64 // the soundest so far
}

// bucket is pods of one clientele that ask for resources in about the same proportions.
type bucket struct {
	demandClass int
	amount      vec64 // one unit of it, on live axes in units of scale
	need        vec64 // the same in units of each resource, on all axes
	demand      float64
}

type vec64 []float64

// maxDemandClasses bounds the program's size. Further clienteles share one that may use whatever any of them may,
// which makes the bound lower, but no less sound.
const maxDemandClasses = 32

// appraise finds what pods are worth while all of them are still to be placed.
func (sv *solver) solveRelaxation() {
	m := &lpRelaxation{axes: len(sv.axes.names), roomDuals: make(vec64, len(sv.axes.names))}
	sv.lp = m
	known := map[string]*demandClass{}
	byLists := map[string]*demandClass{}
	var key []byte
	for _, c := range sv.classes {
		c.value, c.boundValue, c.bucket, c.deferred = 0, 0, -1, false
		if c.unplaceable() {
			if c.pricedRun != sv.run {
				c.demand, c.heaviestPool = nil, nil // those of an earlier run know columns that are not there any more
			}
			continue
		}
		if k := c.constraintClass; k.pricedRun != sv.run {
			k.pricedRun = sv.run
			lists := sv.candidateLists(k)
			k.demand, k.heaviestPool = nil, nil
			if len(lists) > 0 {
				k.heaviestPool = lists[0]
			}
			key = key[:0]
			for _, l := range lists {
				key = binary.AppendUvarint(key, uint64(l.id))
			}
			g, ok := byLists[string(key)]
			if !ok {
				g = m.demandClassOf(sv.offeringsOf(lists), known)
				byLists[string(key)] = g
			}
			k.demand = g
		}
	}
	if len(m.demandClasses) == 0 {
		return
	}
	m.addOfferings(sv)
	// What nothing on sale holds, however large, must not sway what others are taken to be worth.
	sold := make([]*class, 0, len(sv.classes))
	for _, c := range sv.classes {
		if m.anyOfferingHolds(c) {
			sold = append(sold, c)
			for i, r := range c.requests {
				c.demand.maxRequests[i] = max(c.demand.maxRequests[i], r)
			}
		}
	}
	if len(sold) == 0 {
		return
	}
	m.scaleAxes(sold)
	m.fillBuckets(sold)
	m.generateColumns(fullEffort)
	for _, c := range sold {
		c.value = m.podValue(c)
		c.boundValue, c.deferred = c.value, false
		m.queueValue += c.value * float64(c.count)
	}
	m.lastValue = m.queueValue
	m.priceExistingRoom(sv.start.free, sold)
	if len(sv.templates) > 1 {
		for _, c := range sold {
			c.deferred = m.pricierInHeaviestPool(c)
		}
	}
}

// holds tells whether some column that the class can use has room for one of its pods.
func (m *lpRelaxation) anyOfferingHolds(c *class) bool {
	if c.demand == nil || c.unplaceable() {
		return false
	}
	for _, k := range slices.Backward(c.demand.usable) { // those that hold most come last
		if c.requests.within(m.offerings[k].room) {
			return true
		}
	}
	return false
}

// resolveForStrategy is appraise for a queue that has been appraised before.
func (sv *solver) resolveForStrategy() {
	m := sv.lp
	if len(m.buckets) == 0 {
		return
	}
	m.fillBuckets(sv.classes)
	m.generateColumns(m.resolveEffort())
	for _, c := range sv.classes {
		c.value = m.podValue(c)
	}
	m.lastValue = m.queueValue
}

// patience is how much more than elsewhere a pod may have to pay in a pool that it must buy from.
const maxPoolPremium = 1.1

// dearer tells whether a pod of the class would pay a good deal more in the heaviest pool that takes it than elsewhere.
// It had better wait until others have bought nodes elsewhere, which it may join.
func (m *lpRelaxation) pricierInHeaviestPool(c *class) bool {
	if c.demand == nil || c.heaviestPool == nil {
		return false
	}
	limit := c.value * maxPoolPremium
	for _, cand := range c.heaviestPool.list {
		if cand.offering < 0 {
			return false // there is a reservation
		}
		if k := m.representative[cand.offering]; k >= 0 && c.requests.within(c.heaviestPool.t.types[cand.t].room) {
			if col := &m.offerings[k]; col.feasibleDuals.cost(c.requests)*cand.price <= limit*col.price {
				return false
			}
		}
	}
	return true
}

// reappraise finds what pods are worth to what is left of the queue, once that is a good deal less than before:
// other resources are scarce then. The bound stays.
func (sv *solver) resolveForRest() {
	m := sv.lp
	if sv.valueLeft > m.lastValue*m.resolveEffort().resolveBelow || len(m.buckets) == 0 {
		return
	}
	m.lastValue = sv.valueLeft
	waiting := sv.waitingClasses()
	m.fillBuckets(waiting)
	m.generateColumns(m.resolveEffort())
	for i, c := range waiting {
		if i > 0 && c.packingClass == waiting[i-1].packingClass {
			c.value = waiting[i-1].value
		} else {
			c.value = m.podValue(c)
		}
	}
}

// effort is what another appraisal is worth.
func (m *lpRelaxation) resolveEffort() lpEffort {
	if len(m.demandClasses) > 1 {
		return fullEffort
	}
	return quickEffort
}

// candidateLists lists the candidates that any of the kind's shapes and volume alternatives leave, per template.
func (sv *solver) candidateLists(k *constraintClass) []*candidates {
	var out []*candidates
	for _, t := range sv.templates {
		for _, level := range k.levels {
			if level.blocked.has(t.index) {
				continue
			}
			for _, alt := range k.volumes {
				if l := sv.candidatesFor(candidateKey{t, level.internedStrict.id, alt.id}, level, alt); l != nil && !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// opening is a template under what pods insist on and what a volume of theirs demands, by the ids of the wishes.
type candidateKey struct {
	t              *template
	strict, volume int
}

// opened are the opening's candidates, worked out once; nil if there can be none.
func (sv *solver) candidatesFor(o candidateKey, level *relaxationLevel, volume internedSet) *candidates {
	l, known := sv.candidatesByKey[o]
	if !known {
		if o.t.reqs.Compatible(level.strict, sv.s.Labels.WellKnown) {
			l = sv.candidates(o.t, o.t.reqs.Intersect(level.strict.Without(corev1.LabelHostname)).Intersect(volume.set.Without(corev1.LabelHostname)))
		}
		sv.candidatesByKey[o] = l
	}
	return l
}

// offers are those that any of the lists admits.
func (sv *solver) offeringsOf(lists []*candidates) bitset {
	out := make(bitset, (sv.offerings+63)/64)
	for _, l := range lists {
		for _, cand := range l.list {
			ti := &l.t.types[cand.t]
			for i := range ti.Offerings {
				if o := &ti.Offerings[i]; o.Available && o.ReservationID == "" && l.reqs.Overlaps(o.Requirements) {
					out.add(ti.offering + i)
				}
			}
		}
	}
	return out
}

// client returns the clientele of these offers; nil if there is nothing to buy.
func (m *lpRelaxation) demandClassOf(offers bitset, known map[string]*demandClass) *demandClass {
	var key []byte
	found := false
	for _, word := range offers {
		key = binary.LittleEndian.AppendUint64(key, word)
		found = found || word != 0
	}
	if !found {
		return nil
	}
	if g := known[string(key)]; g != nil {
		return g
	}
	if len(m.demandClasses) == maxDemandClasses {
		g := m.demandClasses[maxDemandClasses-1]
		for i, word := range offers {
			g.offerings[i] |= word
		}
		known[string(key)] = g
		return g
	}
	g := &demandClass{index: len(m.demandClasses), offerings: offers, maxRequests: make(vec, m.axes)}
	known[string(key)] = g
	m.demandClasses = append(m.demandClasses, g)
	return g
}

// value is the least that a pod of the class would pay anywhere, in $/h.
func (m *lpRelaxation) podValue(c *class) float64 {
	if c.demand == nil {
		return 0
	}
	least := math.Inf(1)
	for _, k := range c.demand.usable {
		// Most columns are too dear, so room is asked about last.
		if col := &m.offerings[k]; c.amounts.dot(col.feasibleDuals) < least && c.requests.within(col.room) {
			least = c.amounts.dot(col.feasibleDuals)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// priceExistingRoom finds what a unit of room that need not be bought is worth at most, for the bound: on nodes that exist, and in
// reservations. A clientele's pods are worth no more than they would pay on any one column that holds the largest
// of them, so the column is chosen that makes the least of it.
func (m *lpRelaxation) priceExistingRoom(free vec64, classes []*class) {
	all := slices.Clone(free)
	for _, c := range classes {
		for i, x := range c.requests {
			all[i] += float64(x) * float64(c.count)
		}
	}
	for _, g := range m.demandClasses {
		var best *lpOffering
		least := math.Inf(1)
		for _, k := range g.usable {
			col := &m.offerings[k]
			if v := all.dot(col.feasibleDuals); v < least && g.maxRequests.within(col.room) {
				best, least = col, v
			}
		}
		for i := range m.roomDuals {
			if best != nil {
				m.roomDuals[i] = max(m.roomDuals[i], best.feasibleDuals[i])
				continue
			}
			for _, k := range g.usable {
				m.roomDuals[i] = max(m.roomDuals[i], m.offerings[k].feasibleDuals[i])
			}
		}
	}
	m.existingRoomValue = free.dot(m.roomDuals)
}

// dualsOf is what a unit of the candidate's room is worth to the pods that go with it best.
func (m *lpRelaxation) dualsOf(ti *typeInfo, cand candidate) vec64 {
	if cand.offering >= 0 && m.representative[cand.offering] >= 0 {
		return m.offerings[m.representative[cand.offering]].duals
	}
	for k := range ti.Offerings { // in a reservation, as if it were bought
		if col := m.representative[ti.offering+k]; col >= 0 {
			return m.offerings[col].duals
		}
	}
	return m.roomDuals
}

func (v vec64) dot(o vec64) float64 {
	total := 0.0
	o = o[:len(v)]
	for i, x := range v {
		total += x * o[i]
	}
	return total
}

// lowerBound is what no plan that places the same pods costs less than: the worth of the pods placed, less that of all room
// that existing nodes had; where there are none, at least the cheapest node for the dearest pod.
func (sv *solver) lowerBound() float64 {
	if sv.lp == nil {
		return 0
	}
	total, single := -sv.lp.existingRoomValue, 0.0
	for _, c := range sv.classes {
		total += c.boundValue * float64(c.onExisting)
	}
	var dearest *class
	for _, b := range sv.bins {
		for _, h := range b.contents {
			total += h.class.boundValue * float64(h.n)
			if dearest == nil || h.class.boundValue > dearest.boundValue {
				dearest = h.class
			}
		}
	}
	total -= sv.reservedValue()
	if dearest != nil && sv.start.nodes == 0 && len(sv.slots.ids) == 0 {
		single = sv.lp.cheapestNodeFor(dearest)
	}
	return max(total, single, 0)
}

// alone is the price of the cheapest node that holds a pod of the class.
func (m *lpRelaxation) cheapestNodeFor(c *class) float64 {
	if c.demand == nil {
		return 0
	}
	for _, k := range c.demand.usable { // cheapest first, and none that is missing would hold more for less
		if col := &m.offerings[k]; c.requests.fits(col.room) {
			return col.price * (1 - 1e-9)
		}
	}
	return 0
}
