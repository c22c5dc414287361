package schedule

import (
	"encoding/binary"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// relaxation is the linear program of a run: the solver's classes are its pods, and the offerings of all templates its
// offerings, by their numbers. See package lp for what its prices prove.
type relaxation struct {
	// program is nil if no pod can use any offering.
	program       *lp.Program
	demandClasses []*demandClass
	// roomDuals are, per axis, an upper bound on the value of one unit to any pod on an existing node.
	roomDuals vec64
	// queueValue is the value of the whole queue, lastValue that of the pods left at the last solve.
	queueValue, lastValue float64
	// existingRoomValue is the value of all free room on existing nodes.
	existingRoomValue float64
	ruleBound         ruleBound
	solves            int       // so far
	left              []lp.Left // buffer of resolve
}

// demandClass is pods that can use the same offerings.
type demandClass struct {
	index     int
	offerings resources.Bitset // over all templates' types
}

// vec64 is a floating-point number per axis.
type vec64 []float64

// solveRelaxation computes the value of each pod and the lower bound, while all pods are still to be placed.
//
// Cost: that of newRelaxation.
func (sv *solver) solveRelaxation() {
	m := sv.newRelaxation()
	sv.lp, sv.bound = m, m
	for _, c := range sv.classes {
		c.boundValue, c.boundPods, c.boundDemand, c.deferred = c.value, c.lpPods, c.demand, false
	}
	if m.program == nil {
		return
	}
	m.lastValue = m.queueValue
	m.roomDuals = m.program.ExistingRoomDuals(sv.start.free)
	m.existingRoomValue = sv.start.free.dot(m.roomDuals)
	if len(sv.pools.All()) > 1 {
		for _, c := range sv.classes {
			c.deferred = sv.pricierInHeaviestPool(c)
		}
	}
}

// newRelaxation solves the linear program for the classes of the run, and gives them their values.
//
// Cost: linear in classes and candidates for setting up; then lp.New.
func (sv *solver) newRelaxation() *relaxation {
	m := &relaxation{roomDuals: make(vec64, sv.axes.Len())}
	sv.assignDemandClasses(m)
	if len(m.demandClasses) == 0 {
		return m
	}
	in := lp.Input{Axes: sv.axes.Len(), Classes: len(m.demandClasses), Offerings: sv.lpOfferings(m)}
	for _, c := range sv.classes {
		if c.demand != nil && !c.unplaceable() && c.count > 0 {
			c.lpPods = len(in.Pods)
			in.Pods = append(in.Pods, lp.Pods{Class: c.demand.index, Requests: c.requests, Count: c.count})
		}
	}
	m.program = lp.New(in)
	for _, c := range sv.classes {
		c.value = m.podValue(c)
		m.queueValue += c.value * float64(c.count)
	}
	return m
}

// assignDemandClasses resets what classes know of the program, and finds the demand class of each that can be placed.
func (sv *solver) assignDemandClasses(m *relaxation) {
	sv.priced++
	known := map[string]*demandClass{}
	byLists := map[string]*demandClass{}
	var key []byte
	for _, c := range sv.classes {
		c.value, c.lpPods = 0, -1
		if c.unplaceable() || c.count == 0 {
			if c.pricedBy != sv.priced {
				c.demand, c.heaviestPool = nil, nil // those of an earlier run refer to offerings of that run
			}
			continue
		}
		k := c.constraintClass
		if k.pricedBy == sv.priced {
			continue
		}
		k.pricedBy = sv.priced
		lists := sv.candidateLists(k)
		k.demand, k.heaviestPool = nil, nil
		for _, l := range lists {
			if l.Template().Weight() == lists[0].Template().Weight() {
				k.heaviestPool = append(k.heaviestPool, l)
			}
		}
		key = key[:0]
		for _, l := range lists {
			key = binary.AppendUvarint(key, uint64(l.ID()))
		}
		g, ok := byLists[string(key)]
		if !ok {
			g = m.demandClassOf(sv.pools.OfferingsOf(lists), known)
			byLists[string(key)] = g
		}
		k.demand = g
	}
}

// lpOfferings are the offerings of all templates, by number, with the demand classes that can use each of them.
func (sv *solver) lpOfferings(m *relaxation) []lp.Offering {
	out := make([]lp.Offering, sv.pools.OfferingCount())
	for _, t := range sv.pools.All() {
		for i := range t.Types() {
			ti := &t.Types()[i]
			if slices.ContainsFunc(ti.Room(), func(r int64) bool { return r < 0 }) {
				continue // nothing fits
			}
			for k := range ti.Offerings {
				o := &out[ti.FirstOffering()+k]
				o.Room, o.Price = ti.Room(), sv.pools.NodePrice(ti.Offerings[k].Price)
				for _, g := range m.demandClasses {
					if g.offerings.Has(ti.FirstOffering() + k) {
						o.Classes.Add(g.index)
					}
				}
			}
		}
	}
	return out
}

// podValue is the value of a pod of the class at the last prices; zero if no offering holds it.
func (m *relaxation) podValue(c *class) float64 {
	if m.program == nil || c.lpPods < 0 {
		return 0
	}
	return m.program.Value(c.lpPods)
}

// maxPoolPremium is how much more than elsewhere a pod may cost in the heaviest pool that takes it before it is
// deferred. Small differences are not worth waiting for, since a node elsewhere may not have room after all.
const maxPoolPremium = 1.1

// pricierInHeaviestPool reports whether a pod of the class costs a good deal more in its heaviest pool than elsewhere.
// Such a pod waits until nodes are launched elsewhere, which it may join.
func (sv *solver) pricierInHeaviestPool(c *class) bool {
	if c.lpPods < 0 || len(c.heaviestPool) == 0 || !sv.lp.program.Holds(c.lpPods) {
		return false
	}
	limit := c.value * maxPoolPremium
	for _, l := range c.heaviestPool {
		for _, cand := range l.List() {
			if cand.Offering < 0 {
				return false // there is a reservation
			}
			if c.requests.Within(l.TypeOf(cand).Room()) && sv.lp.program.CostsAtMost(c.lpPods, cand.Offering, cand.Price, limit) {
				return false
			}
		}
	}
	return true
}

// resolveForStrategy is solveRelaxation for a queue that has been solved before, at the start of another strategy.
func (sv *solver) resolveForStrategy() {
	sv.lp.resolve(sv.classes)
	sv.lp.lastValue = sv.lp.queueValue
}

// resolveForRest solves the LP for the pods that are left, once their value is a good deal less than at the last solve:
// other resources may be scarce then. The lower bound is not changed.
func (sv *solver) resolveForRest() {
	m := sv.lp
	if m.program == nil || sv.valueLeft > m.lastValue*m.program.ResolveBelow() {
		return
	}
	m.lastValue = sv.valueLeft
	m.resolve(sv.waitingClasses())
}

// resolve solves the program for the pods that are left of the classes, and gives these their new values.
func (m *relaxation) resolve(classes []*class) {
	if m.program == nil {
		return
	}
	m.left = m.left[:0]
	for _, c := range classes {
		if c.lpPods >= 0 {
			m.left = append(m.left, lp.Left{Pods: c.lpPods, Count: c.count})
		}
	}
	m.program.Resolve(m.left)
	m.solves++
	for i, c := range classes {
		if i > 0 && c.packingClass == classes[i-1].packingClass && classes[i-1].lpPods >= 0 {
			c.value = classes[i-1].value
		} else {
			c.value = m.podValue(c)
		}
	}
}

// candidateLists lists, per template, the candidates that any relaxation level and volume alternative of the class
// leaves.
func (sv *solver) candidateLists(k *constraintClass) []*nodepool.Candidates {
	var out []*nodepool.Candidates
	for _, t := range sv.pools.All() {
		for _, level := range k.levels {
			if level.blocked.Has(t.Index()) {
				continue
			}
			for _, alt := range k.volumes {
				if l := sv.pools.Admit(t, level.internedStrict, alt); l != nil && !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// demandClassOf returns the demand class of these offerings; nil if there are none.
func (m *relaxation) demandClassOf(offers resources.Bitset, known map[string]*demandClass) *demandClass {
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
	if len(m.demandClasses) == lp.MaxClasses {
		g := m.demandClasses[lp.MaxClasses-1]
		for i, word := range offers {
			g.offerings[i] |= word
		}
		known[string(key)] = g
		return g
	}
	g := &demandClass{index: len(m.demandClasses), offerings: offers}
	known[string(key)] = g
	m.demandClasses = append(m.demandClasses, g)
	return g
}

// dualsOf are the dual prices of the candidate's offering. A reserved candidate has those of the type at its normal
// price.
func (m *relaxation) dualsOf(ti *nodepool.Type, cand nodepool.Candidate) vec64 {
	if cand.Offering >= 0 {
		if duals := m.program.Duals(cand.Offering); duals != nil {
			return duals
		}
	}
	for k := range ti.Offerings { // in a reservation: as if it had its normal price
		if duals := m.program.Duals(ti.FirstOffering() + k); duals != nil {
			return duals
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

// lowerBound is less than or equal to the cost of any plan that schedules the same pods: valueBound, and without existing
// nodes and reservations at least the price of the cheapest node for the pod with the highest value.
func (sv *solver) lowerBound() float64 {
	if sv.bound == nil {
		return 0
	}
	var dearest *class
	for _, b := range sv.bins {
		for _, h := range b.contents {
			if dearest == nil || h.class.boundValue > dearest.boundValue {
				dearest = h.class
			}
		}
	}
	single := 0.0
	if dearest != nil && sv.start.nodes == 0 && sv.slots.Len() == 0 && dearest.boundPods >= 0 {
		single = sv.bound.program.CheapestNode(dearest.boundPods)
	}
	return max(sv.valueBound(), single, 0)
}

// valueBound is the value of the scheduled pods, less that of all room that existing nodes and reservations had. No plan
// that schedules the same pods costs less.
func (sv *solver) valueBound() float64 {
	total := -sv.bound.existingRoomValue
	for _, c := range sv.classes {
		total += c.boundValue * float64(c.onExisting)
	}
	for _, b := range sv.bins {
		for _, h := range b.contents {
			total += h.class.boundValue * float64(h.n)
		}
	}
	return total - sv.reservedValue(sv.bound.roomDuals, nil)
}
