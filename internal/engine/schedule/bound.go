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
type market struct {
	axes    int
	clients []*clientele
	columns []column
	// standIn is the column that each offering is, or by which it is dominated; -1 where nobody can use it.
	standIn []int32
	live    []int // axes on which anything is asked for
	scale   vec64 // the largest room, per axis
	lp      covering
	buckets []bucket
	ready   bool // the program has been set up
	fill    filling
	// memory of rate
	share                 [][]float64
	worth, amounts, rents []float64
	items                 []int
	open                  []int // of recipes
	allowed               []float64
	looked                []*column
	centre                []float64 // the best sound prices of buckets

	// rentAll is, per axis, no less than what a unit is worth to anybody whom a node that exists can hold.
	rentAll vec64
	// ahead is the worth of the whole queue, appraised that of what was left at the last appraisal.
	ahead, appraised float64
	// existing is the worth of all room on nodes that exist.
	existing float64
}

// clientele is pods that can use the same offerings.
type clientele struct {
	index  int
	offers bitset // over all templates' types
	most   vec    // per axis, the most that one of its pods asks for
	usable []int  // columns
}

// column is an offering: a node that costs price and may hold pods of clients only.
type column struct {
	index   int
	room    vec
	size    vec64 // room in units of scale, on live axes
	price   float64
	clients uint32
	// value is the most worth that the room can hold at the rents that follow, by the last appraisal; rent is per unit of
	// all axes, such that every pod is worth no more than it pays; sound is rent scaled up to the price.
	value       float64
	rent, sound vec64
	best        vec64 // the soundest so far
}

// bucket is pods of one clientele that ask for resources in about the same proportions.
type bucket struct {
	client int
	amount vec64 // one unit of it, on live axes in units of scale
	need   vec64 // the same in units of each resource, on all axes
	demand float64
}

type vec64 []float64

// maxClients bounds the program's size. Further clienteles share one that may use whatever any of them may,
// which makes the bound lower, but no less sound.
const maxClients = 32

// appraise finds what pods are worth while all of them are still to be placed.
func (sv *solver) appraise() {
	m := &market{axes: len(sv.axes.names), rentAll: make(vec64, len(sv.axes.names))}
	sv.market = m
	known := map[string]*clientele{}
	byLists := map[string]*clientele{}
	var key []byte
	for _, c := range sv.classes {
		c.weight, c.bound, c.bucket, c.waits = 0, 0, -1, false
		if c.hopeless() {
			if c.appraised != sv.run {
				c.client, c.heaviest = nil, nil // those of an earlier run know columns that are not there any more
			}
			continue
		}
		if k := c.kind; k.appraised != sv.run {
			k.appraised = sv.run
			lists := sv.openTo(k)
			k.client, k.heaviest = nil, nil
			if len(lists) > 0 {
				k.heaviest = lists[0]
			}
			key = key[:0]
			for _, l := range lists {
				key = binary.AppendUvarint(key, uint64(l.id))
			}
			g, ok := byLists[string(key)]
			if !ok {
				g = m.client(sv.offers(lists), known)
				byLists[string(key)] = g
			}
			k.client = g
		}
	}
	if len(m.clients) == 0 {
		return
	}
	m.list(sv)
	// What nothing on sale holds, however large, must not sway what others are taken to be worth.
	sold := make([]*class, 0, len(sv.classes))
	for _, c := range sv.classes {
		if m.holds(c) {
			sold = append(sold, c)
			for i, r := range c.requests {
				c.client.most[i] = max(c.client.most[i], r)
			}
		}
	}
	if len(sold) == 0 {
		return
	}
	m.measure(sold)
	m.fillBuckets(sold)
	m.solve(forTheBound)
	for _, c := range sold {
		c.weight = m.value(c)
		c.bound, c.waits = c.weight, false
		m.ahead += c.weight * float64(c.count)
	}
	m.appraised = m.ahead
	m.rateRoom(sv.start.free, sold)
	if len(sv.templates) > 1 {
		for _, c := range sold {
			c.waits = m.dearer(c)
		}
	}
}

// holds tells whether some column that the class can use has room for one of its pods.
func (m *market) holds(c *class) bool {
	if c.client == nil || c.hopeless() {
		return false
	}
	for _, k := range slices.Backward(c.client.usable) { // those that hold most come last
		if c.requests.within(m.columns[k].room) {
			return true
		}
	}
	return false
}

// appraiseAgain is appraise for a queue that has been appraised before.
func (sv *solver) appraiseAgain() {
	m := sv.market
	if len(m.buckets) == 0 {
		return
	}
	m.fillBuckets(sv.classes)
	m.solve(m.effort())
	for _, c := range sv.classes {
		c.weight = m.value(c)
	}
	m.appraised = m.ahead
}

// patience is how much more than elsewhere a pod may have to pay in a pool that it must buy from.
const patience = 1.1

// dearer tells whether a pod of the class would pay a good deal more in the heaviest pool that takes it than elsewhere.
// It had better wait until others have bought nodes elsewhere, which it may join.
func (m *market) dearer(c *class) bool {
	if c.client == nil || c.heaviest == nil {
		return false
	}
	limit := c.weight * patience
	for _, cand := range c.heaviest.list {
		if cand.offer < 0 {
			return false // there is a reservation
		}
		if k := m.standIn[cand.offer]; k >= 0 && c.requests.within(c.heaviest.t.types[cand.t].room) {
			if col := &m.columns[k]; col.sound.times(c.requests)*cand.price <= limit*col.price {
				return false
			}
		}
	}
	return true
}

// reappraise finds what pods are worth to what is left of the queue, once that is a good deal less than before:
// other resources are scarce then. The bound stays.
func (sv *solver) reappraise() {
	m := sv.market
	if sv.left > m.appraised*m.effort().at || len(m.buckets) == 0 {
		return
	}
	m.appraised = sv.left
	waiting := sv.stillWaiting()
	m.fillBuckets(waiting)
	m.solve(m.effort())
	for i, c := range waiting {
		if i > 0 && c.family == waiting[i-1].family {
			c.weight = waiting[i-1].weight
		} else {
			c.weight = m.value(c)
		}
	}
}

// effort is what another appraisal is worth.
func (m *market) effort() effort {
	if len(m.clients) > 1 {
		return forTheBound
	}
	return forTheRest
}

// openTo lists the candidates that any of the kind's shapes and volume alternatives leave, per template.
func (sv *solver) openTo(k *kind) []*candidates {
	var out []*candidates
	for _, t := range sv.templates {
		for _, sh := range k.shapes {
			if sh.blocked.has(t.index) {
				continue
			}
			for _, alt := range k.volumes {
				if l := sv.opened(opening{t, sh.insists.id, alt.id}, sh, alt); l != nil && !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
	}
	return out
}

// opening is a template under what pods insist on and what a volume of theirs demands, by the ids of the wishes.
type opening struct {
	t               *template
	insists, volume int
}

// opened are the opening's candidates, worked out once; nil if there can be none.
func (sv *solver) opened(o opening, sh *shape, volume wish) *candidates {
	l, known := sv.open[o]
	if !known {
		if o.t.reqs.Compatible(sh.strict, sv.s.Labels.WellKnown) {
			l = sv.candidates(o.t, o.t.reqs.Intersect(sh.strict.Without(corev1.LabelHostname)).Intersect(volume.set.Without(corev1.LabelHostname)))
		}
		sv.open[o] = l
	}
	return l
}

// offers are those that any of the lists admits.
func (sv *solver) offers(lists []*candidates) bitset {
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
func (m *market) client(offers bitset, known map[string]*clientele) *clientele {
	var key []byte
	any := false
	for _, word := range offers {
		key = binary.LittleEndian.AppendUint64(key, word)
		any = any || word != 0
	}
	if !any {
		return nil
	}
	if g := known[string(key)]; g != nil {
		return g
	}
	if len(m.clients) == maxClients {
		g := m.clients[maxClients-1]
		for i, word := range offers {
			g.offers[i] |= word
		}
		known[string(key)] = g
		return g
	}
	g := &clientele{index: len(m.clients), offers: offers, most: make(vec, m.axes)}
	known[string(key)] = g
	m.clients = append(m.clients, g)
	return g
}

// value is the least that a pod of the class would pay anywhere, in $/h.
func (m *market) value(c *class) float64 {
	if c.client == nil {
		return 0
	}
	least := math.Inf(1)
	for _, k := range c.client.usable {
		// Most columns are too dear, so room is asked about last.
		if col := &m.columns[k]; c.amounts.dot(col.sound) < least && c.requests.within(col.room) {
			least = c.amounts.dot(col.sound)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// rateRoom finds what a unit of room that need not be bought is worth at most, for the bound: on nodes that exist, and in
// reservations. A clientele's pods are worth no more than they would pay on any one column that holds the largest
// of them, so the column is chosen that makes the least of it.
func (m *market) rateRoom(free vec64, classes []*class) {
	all := slices.Clone(free)
	for _, c := range classes {
		for i, x := range c.requests {
			all[i] += float64(x) * float64(c.count)
		}
	}
	for _, g := range m.clients {
		var best *column
		least := math.Inf(1)
		for _, k := range g.usable {
			col := &m.columns[k]
			if v := all.dot(col.sound); v < least && g.most.within(col.room) {
				best, least = col, v
			}
		}
		for i := range m.rentAll {
			if best != nil {
				m.rentAll[i] = max(m.rentAll[i], best.sound[i])
				continue
			}
			for _, k := range g.usable {
				m.rentAll[i] = max(m.rentAll[i], m.columns[k].sound[i])
			}
		}
	}
	m.existing = free.dot(m.rentAll)
}

// rentOf is what a unit of the candidate's room is worth to the pods that go with it best.
func (m *market) rentOf(ti *typeInfo, cand candidate) vec64 {
	if cand.offer >= 0 && m.standIn[cand.offer] >= 0 {
		return m.columns[m.standIn[cand.offer]].rent
	}
	for k := range ti.Offerings { // in a reservation, as if it were bought
		if col := m.standIn[ti.offering+k]; col >= 0 {
			return m.columns[col].rent
		}
	}
	return m.rentAll
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
	if sv.market == nil {
		return 0
	}
	total, single := -sv.market.existing, 0.0
	for _, c := range sv.classes {
		total += c.bound * float64(c.joined)
	}
	var dearest *class
	for _, b := range sv.bins {
		for _, h := range b.held {
			total += h.c.bound * float64(h.n)
			if dearest == nil || h.c.bound > dearest.bound {
				dearest = h.c
			}
		}
	}
	total -= sv.paidFor()
	if dearest != nil && sv.start.nodes == 0 && len(sv.seats.ids) == 0 {
		single = sv.market.alone(dearest)
	}
	return max(total, single, 0)
}

// alone is the price of the cheapest node that holds a pod of the class.
func (m *market) alone(c *class) float64 {
	if c.client == nil {
		return 0
	}
	for _, k := range c.client.usable { // cheapest first, and none that is missing would hold more for less
		if col := &m.columns[k]; c.requests.fits(col.room) {
			return col.price * (1 - 1e-9)
		}
	}
	return 0
}
