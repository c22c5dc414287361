package schedule

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// market is what nodes cost as pods see it, and what resources are worth on it.
//
// Pods that can use the same offerings form a clientele. The worth of a resource is a price per unit
// and clientele such that no node, however it is packed, holds more worth than it costs. Then whatever
// holds a set of pods costs at least their worth: a lower bound on all plans, by weak duality of the linear
// program "buy fractions of nodes". A node is bought as one offering, so only pods that can all use that share it. It holds for any such prices; the best are found by simplex.
type market struct {
	axes     int
	clients  []*clientele
	columns  []column
	worthAll vec64 // per axis, the most that a unit is worth to anybody
	bound    vec64 // worthAll at the first appraisal
	// ahead is the worth of the whole queue, appraised that of what was left at the last appraisal.
	ahead, appraised float64
}

// clientele is pods that can use the same offerings.
type clientele struct {
	offers bitset // over all templates' types
	demand vec64  // of all pods, per axis
	worth  vec64  // $/h per unit, per axis
}

// column is an offering: a node that costs price and may hold pods of clients (indices) only.
type column struct {
	room    vec
	price   float64
	clients []int
}

type vec64 []float64

// maxClients bounds the program's size. Further clienteles share one that may use whatever any of them may,
// which makes the bound lower, but no less sound.
const maxClients = 24

// appraise finds what resources are worth for the classes' pods that are still to be placed.
func (sv *solver) appraise() {
	m := &market{axes: len(sv.axes.names), worthAll: make(vec64, len(sv.axes.names))}
	sv.market = m
	known := map[string]*clientele{}
	byLists := map[string]*clientele{}
	for _, c := range sv.classes {
		if c.count == 0 {
			continue
		}
		lists := sv.openTo(c)
		var key []byte
		for _, l := range lists {
			key = binary.AppendUvarint(key, uint64(l.id))
		}
		g := byLists[string(key)]
		if g == nil {
			g = m.client(sv.offers(lists), known)
			byLists[string(key)] = g
		}
		if g == nil {
			continue
		}
		c.client = g
		for i, r := range c.requests {
			g.demand[i] += float64(r) * float64(c.count)
		}
	}
	m.list(sv)
	m.solve()
	m.bound = slices.Clone(m.worthAll)
	for _, c := range sv.classes {
		c.weight = c.client.value(c.requests)
		c.bound = c.weight
		m.ahead += c.weight * float64(c.count)
	}
	m.appraised = m.ahead
}

// reappraise finds what resources are worth for what is left of the queue, once that is a good deal less than before:
// other resources are scarce then. The bound stays.
func (sv *solver) reappraise() {
	m := sv.market
	left := 0.0
	for _, g := range m.clients {
		clear(g.demand)
	}
	for _, c := range sv.waiting {
		left += c.bound * float64(c.count)
	}
	if left > m.appraised*reappraiseAt {
		return
	}
	m.appraised = left
	for _, c := range sv.waiting {
		if c.client == nil {
			continue
		}
		for i, r := range c.requests {
			c.client.demand[i] += float64(r) * float64(c.count)
		}
	}
	clear(m.worthAll)
	m.solve()
	for _, c := range sv.waiting {
		c.weight = c.client.value(c.requests)
	}
}

// reappraiseAt is the share of the worth at the last appraisal that calls for another.
const reappraiseAt = 0.8

// openTo lists the candidates that any of the class's shapes and volume alternatives leave, per template.
func (sv *solver) openTo(c *class) []*candidates {
	var out []*candidates
	for _, t := range sv.templates {
		for _, sh := range c.shapes {
			if _, blocked := snapshot.Untolerated(sh.tolerations, t.taints); blocked || !t.reqs.Compatible(sh.strict, sv.s.Labels.WellKnown) {
				continue
			}
			base := t.reqs.Intersect(sh.strict.Without(corev1.LabelHostname))
			for _, alt := range c.volumes {
				if l := sv.candidates(t, base.Intersect(alt.set.Without(corev1.LabelHostname))); !slices.Contains(out, l) {
					out = append(out, l)
				}
			}
		}
	}
	return out
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
	g := &clientele{offers: offers, demand: make(vec64, m.axes), worth: make(vec64, m.axes)}
	known[string(key)] = g
	m.clients = append(m.clients, g)
	return g
}

// list makes the columns: each offering that some clientele can use, without those that another column dominates.
func (m *market) list(sv *solver) {
	for _, t := range sv.templates {
		for i := range t.types {
			ti := &t.types[i]
			if slices.ContainsFunc(ti.room, func(r int64) bool { return r < 0 }) {
				continue // nothing fits
			}
			for k := range ti.Offerings {
				c := column{room: ti.room, price: ti.Offerings[k].Price}
				for j, g := range m.clients {
					if g.offers.has(ti.offering + k) {
						c.clients = append(c.clients, j)
					}
				}
				if len(c.clients) > 0 {
					m.columns = append(m.columns, c)
				}
			}
		}
	}
	slices.SortStableFunc(m.columns, func(a, b column) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(len(b.clients), len(a.clients)))
	})
	kept := m.columns[:0]
	for _, c := range m.columns {
		if !slices.ContainsFunc(kept, func(k column) bool { return c.room.within(k.room) && subset(c.clients, k.clients) }) {
			kept = append(kept, c)
		}
	}
	m.columns = kept
}

func subset(of, all []int) bool {
	return !slices.ContainsFunc(of, func(x int) bool { return !slices.Contains(all, x) })
}

// maxRounds bounds how often rows are added to the program.
const maxRounds = 40

// solve maximises the worth of all demand. Rows are added where nodes turn out to hold more than they cost; in the end
// all worth is scaled down so that none does.
func (m *market) solve() {
	if len(m.clients) == 0 || len(m.columns) == 0 {
		return
	}
	// Numbers are brought to about one: amounts in units of the largest room, worth per such unit.
	scale := make(vec64, m.axes)
	for _, c := range m.columns {
		for i, r := range c.room {
			scale[i] = max(scale[i], float64(r))
		}
	}
	most := m.most(scale)
	lp := &packingLP{value: make([]float64, len(m.clients)*m.axes)}
	for j, g := range m.clients {
		for i, d := range g.demand {
			if scale[i] > 0 {
				lp.value[j*m.axes+i] = d / scale[i] / most
			}
		}
	}
	for range maxRounds {
		if !m.cut(lp, scale) {
			break
		}
		y := lp.solve()
		for j, g := range m.clients {
			for i := range g.worth {
				if scale[i] > 0 {
					g.worth[i] = y[j*m.axes+i] / scale[i]
				}
			}
		}
	}
	m.scaleDown()
}

// most is the largest demand of any clientele, in units of scale.
func (m *market) most(scale vec64) float64 {
	most := 1.0
	for _, g := range m.clients {
		for i, d := range g.demand {
			if scale[i] > 0 {
				most = max(most, d/scale[i])
			}
		}
	}
	return most
}

// cut adds the rows that the present worth breaks, of each kind of column the worst.
func (m *market) cut(lp *packingLP, scale vec64) bool {
	type cutRow struct {
		ratio float64
		c     *column
	}
	worst := map[string]cutRow{}
	var kinds []string
	for k := range m.columns {
		c := &m.columns[k]
		ratio := m.holds(c) / c.price
		if len(lp.rows) > 0 && ratio <= 1+1e-7 {
			continue
		}
		var key []byte
		for _, j := range c.clients {
			key = append(key, byte(j))
		}
		w, ok := worst[string(key)]
		if !ok {
			kinds = append(kinds, string(key))
		}
		if !ok || ratio > w.ratio {
			worst[string(key)] = cutRow{ratio, c}
		}
	}
	if len(lp.rows) == 0 {
		m.start(lp, scale)
		return true
	}
	for _, key := range kinds {
		c := worst[key].c
		row := make([]float64, len(lp.value))
		for i, r := range c.room {
			if r > 0 {
				row[m.dearest(c, i)*m.axes+i] = float64(r) / scale[i]
			}
		}
		lp.add(row, c.price)
	}
	return len(kinds) > 0
}

// start bounds every clientele by the columns that are cheapest per unit of each resource.
func (m *market) start(lp *packingLP, scale vec64) {
	for j := range m.clients {
		for axis := range m.axes {
			best, least := -1, math.Inf(1)
			for k, c := range m.columns {
				if c.room[axis] > 0 && slices.Contains(c.clients, j) {
					if p := c.price / float64(c.room[axis]); p < least {
						best, least = k, p
					}
				}
			}
			row := make([]float64, len(lp.value))
			if best < 0 {
				row[j*m.axes+axis] = 1 // nobody sells it: nobody who asks for it is placed
				lp.add(row, tiny)
				continue
			}
			c := &m.columns[best]
			for i, r := range c.room {
				if r > 0 {
					row[j*m.axes+i] = float64(r) / scale[i]
				}
			}
			lp.add(row, c.price)
		}
	}
}

// dearest is the client of the column to whom a unit of the axis is worth most.
func (m *market) dearest(c *column, axis int) int {
	best := c.clients[0]
	for _, j := range c.clients[1:] {
		if m.clients[j].worth[axis] > m.clients[best].worth[axis] {
			best = j
		}
	}
	return best
}

// holds is the most worth that a node of the column can hold, or more.
func (m *market) holds(c *column) float64 {
	total := 0.0
	for i, r := range c.room {
		if r > 0 {
			total += float64(r) * m.clients[m.dearest(c, i)].worth[i]
		}
	}
	return total
}

// scaleDown makes the worth sound: no column holds more than it costs.
func (m *market) scaleDown() {
	factor := 1.0
	for k := range m.columns {
		if h := m.holds(&m.columns[k]); h > m.columns[k].price*factor {
			factor = min(factor, m.columns[k].price/h)
		}
	}
	factor *= 1 - 1e-9 // rounding
	for _, g := range m.clients {
		for i := range g.worth {
			g.worth[i] *= factor
			m.worthAll[i] = max(m.worthAll[i], g.worth[i])
		}
	}
}

// value is what an amount is worth to the clientele, in $/h.
func (g *clientele) value(v vec) float64 {
	if g == nil {
		return 0
	}
	total := 0.0
	for i, x := range v {
		total += float64(x) * g.worth[i]
	}
	return total
}

// lowerBound is what no plan that places the same pods costs less than: the worth of the pods in new nodes, less that of
// all room that existing nodes have left; where there are none, at least the cheapest node for the dearest pod.
func (sv *solver) lowerBound() float64 {
	total, single := 0.0, 0.0
	var dearest *class
	for _, b := range sv.bins {
		for _, h := range b.held {
			total += h.c.bound * float64(h.n)
			if dearest == nil || h.c.weight > dearest.weight {
				dearest = h.c
			}
		}
	}
	for _, n := range sv.nodes {
		for i, free := range n.free {
			total -= sv.market.bound[i] * float64(max(0, free))
		}
	}
	total -= sv.paidFor()
	if dearest != nil && len(sv.nodes) == 0 && len(sv.seats.ids) == 0 {
		single = sv.market.alone(dearest)
	}
	return max(total, single, 0)
}

// alone is the price of the cheapest node that holds a pod of the class.
func (m *market) alone(c *class) float64 {
	for _, col := range m.columns { // cheapest first, and none that is missing would hold more for less
		if slices.ContainsFunc(col.clients, func(j int) bool { return m.clients[j] == c.client }) && c.requests.fits(col.room) {
			return col.price * (1 - 1e-9)
		}
	}
	return 0
}
