package schedule

import (
	"encoding/binary"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// lpRelaxation is the linear-programming relaxation of the plan, and the dual prices that it yields.
//
// Each lpOffering has a dual price per unit of each resource, such that the prices of a whole node add up to no more
// than the price of the offering. The value of a pod is the least that its requests cost on any lpOffering that it can
// use and that holds it. Then the pods of any node, however it is packed, are worth no more than its price, and all
// pods together no more than any plan costs. This lower bound is weak duality of "launch fractions of nodes, fill them
// with fractions of pods". It holds for any dual-feasible prices. Good ones come from that program, solved over buckets
// of similar pods by column generation: the master LP chooses among patterns, and a pricing LP per offering finds the
// pattern with the most value.
type lpRelaxation struct {
	axes          int
	demandClasses []*demandClass
	offerings     []lpOffering
	// representative maps each offering to its lpOffering, or to one that dominates it; -1 where no pod can use it.
	representative []int32
	axesInUse      []int // axes that some pod requests
	scale          vec64 // the largest room per axis
	master         masterLP
	buckets        []bucket
	ready          bool // the master LP has its rows and starting patterns
	pricing        pricingLP
	// shares, values, amounts, duals and items are buffers of solvePricing.
	shares [][]float64
	//
	values, amounts, duals []float64
	//
	items            []int
	matchingPatterns []int // buffer of matching
	patternLeft      []float64
	// offerings that this solve looks at
	active          []*lpOffering
	stabilityCenter []float64 // the best dual-feasible prices of buckets so far

	// roomDuals are, per axis, an upper bound on the value of one unit to any pod on an existing node.
	roomDuals vec64
	// queueValue is the value of the whole queue, lastValue that of the pods left at the last solve.
	queueValue, lastValue float64
	// existingRoomValue is the value of all free room on existing nodes.
	existingRoomValue float64
}

// demandClass is pods that can use the same offerings.
type demandClass struct {
	index       int
	offerings   bitset // over all templates' types
	maxRequests vec    // per axis, the largest request of one pod
	usable      []int  // indexes of lpOfferings, cheapest first
}

// lpOffering is an offering in the LP: a node that costs price and holds pods of some demand classes only.
type lpOffering struct {
	index int
	room  vec
	size  vec64 // room in units of scale, on the axes in use
	price float64
	// bit set of demand class indexes
	demandClasses uint32
	// packedValue is the most value that the room can hold at the last prices of buckets. duals are the prices per unit
	// of each axis that prove it: no pod is worth more than it costs at them. feasibleDuals are duals scaled so that
	// the whole room costs its price.
	packedValue          float64
	duals, feasibleDuals vec64
	bestFeasible         vec64 // the feasibleDuals of the best bound so far
}

// bucket is pods of one demand class that request resources in about the same proportions.
type bucket struct {
	demandClass int
	amount      vec64 // one unit of it, on the axes in use, in units of scale
	need        vec64 // the same in units of each resource, on all axes
	demand      float64
}

// vec64 is a floating-point number per axis.
type vec64 []float64

// maxDemandClasses bounds the size of the LP: lpOffering.demandClasses is one 32-bit word. Further demand classes share
// the last one, which may use whatever any of them may. That makes the bound lower, but no less valid.
const maxDemandClasses = 32

// solveRelaxation computes the value of each pod and the lower bound, while all pods are still to be placed.
//
// Cost: linear in classes and candidates for setting up; then generateColumns.
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
				c.demand, c.heaviestPool = nil, nil // those of an earlier run refer to offerings of that run
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
	// A pod that no offering holds, however large, must not distort the values of other pods.
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

// anyOfferingHolds reports whether some offering that the class can use has room for one of its pods.
func (m *lpRelaxation) anyOfferingHolds(c *class) bool {
	if c.demand == nil || c.unplaceable() {
		return false
	}
	for _, k := range slices.Backward(c.demand.usable) { // the largest come last
		if c.requests.within(m.offerings[k].room) {
			return true
		}
	}
	return false
}

// resolveForStrategy is solveRelaxation for a queue that has been solved before, at the start of another strategy.
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

// maxPoolPremium is how much more than elsewhere a pod may cost in the heaviest pool that takes it before it is
// deferred. Small differences are not worth waiting for, since a node elsewhere may not have room after all.
const maxPoolPremium = 1.1

// pricierInHeaviestPool reports whether a pod of the class costs a good deal more in its heaviest pool than elsewhere.
// Such a pod waits until nodes are launched elsewhere, which it may join.
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

// resolveForRest solves the LP for the pods that are left, once their value is a good deal less than at the last solve:
// other resources may be scarce then. The lower bound is not changed.
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

// resolveEffort is the effort for solving the LP again.
func (m *lpRelaxation) resolveEffort() lpEffort {
	if len(m.demandClasses) > 1 {
		return fullEffort
	}
	return quickEffort
}

// candidateLists lists, per template, the candidates that any relaxation level and volume alternative of the class
// leaves.
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

// candidateKey is a template under the strict requirements of pods and those of one of their volumes, by the sets' ids.
type candidateKey struct {
	t              *template
	strict, volume int
}

// candidatesFor returns the candidates of a key, computed once; nil if there can be none.
func (sv *solver) candidatesFor(o candidateKey, level *relaxationLevel, volume internedSet) *candidates {
	l, known := sv.candidatesByKey[o]
	if !known {
		if o.t.reqs.Compatible(level.strict, sv.s.Labels.WellKnown) {
			l = sv.candidates(
				o.t,
				o.t.reqs.Intersect(level.strict.Without(corev1.LabelHostname)).Intersect(volume.set.Without(corev1.LabelHostname)),
			)
		}
		sv.candidatesByKey[o] = l
	}
	return l
}

// offeringsOf are the offerings that any of the lists admits.
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

// demandClassOf returns the demand class of these offerings; nil if there are none.
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

// podValue is the least that a pod of the class costs at dual prices, over all offerings that hold it, in $/h.
//
// Cost: one dot product per offering. Room is compared last, since most offerings already cost too much.
func (m *lpRelaxation) podValue(c *class) float64 {
	if c.demand == nil {
		return 0
	}
	least := math.Inf(1)
	for _, k := range c.demand.usable {
		if col := &m.offerings[k]; c.amounts.dot(col.feasibleDuals) < least && c.requests.within(col.room) {
			least = c.amounts.dot(col.feasibleDuals)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// priceExistingRoom bounds the value of a unit of room that is paid for already, on existing nodes and in reservations.
// Pods of a demand class are worth no more than they cost on any one offering that holds the largest of them. Of these
// offerings it takes the one with the least total, which makes the bound as tight as one offering can.
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

// dualsOf are the dual prices of the candidate's offering. A reserved candidate has those of the type at its normal
// price.
func (m *lpRelaxation) dualsOf(ti *typeInfo, cand candidate) vec64 {
	if cand.offering >= 0 && m.representative[cand.offering] >= 0 {
		return m.offerings[m.representative[cand.offering]].duals
	}
	for k := range ti.Offerings { // in a reservation: as if it had its normal price
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

// lowerBound is less than or equal to the cost of any plan that schedules the same pods: the value of the scheduled
// pods, less that of all room that existing nodes and reservations had. Without any of those it is at least the price
// of the cheapest node for the pod with the highest value.
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

// cheapestNodeFor is the price of the cheapest node that holds a pod of the class.
func (m *lpRelaxation) cheapestNodeFor(c *class) float64 {
	if c.demand == nil {
		return 0
	}
	for _, k := range c.demand.usable { // cheapest first; dropped offerings are dominated
		if col := &m.offerings[k]; c.requests.fits(col.room) {
			return col.price * (1 - 1e-9)
		}
	}
	return 0
}
