package price

import (
	"encoding/binary"
	"math"

	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// Problem describes what a Market prices: pods, and the offerings of pools for them.
type Problem struct {
	Pools *nodepool.Models
	Axes  int // resources
	// Usable are the candidates that pods can use, per pool, heaviest pool first. Pods with equal constraints share one.
	Usable [][]*nodepool.Candidates
	Pods   []Pods
	// Free is the free room of all existing nodes together, per axis; nil if RoomOf is set.
	Free []float64
	// RoomOf is a market: this one takes over its value of free room.
	RoomOf *Market
}

// Pods are equal pods.
type Pods struct {
	Requests resources.Vec
	// Count counts how many there are; zero leaves them out of the market.
	Count int
	// Usable is an index into Problem.Usable.
	Usable int
}

// Market is the linear program of a Problem with its prices: classes of pods are its pods, and the offerings of all pools
// its offerings, by their numbers. See package lp for what its prices prove.
type Market struct {
	pools *nodepool.Models
	axes  int
	// program is nil if no pod can use any offering.
	program *lp.Program
	classes []*demandClass
	// pods are the pods of the program, numbers their indices by index into Problem.Pods; -1 for those left out.
	pods    []lp.Pods
	numbers []int
	usable  [][]*nodepool.Candidates // by index of pods
	offers  []lp.Offering            // those of the program
	// roomDuals are, per axis, an upper bound on the value of one unit to any pod on an existing node.
	roomDuals []float64
	total     float64
}

// demandClass is pods that can use the same offerings.
type demandClass struct {
	index     int
	offerings resources.Bitset // over all templates' types
}

// NewMarket prices the pods.
//
// Cost: linear in pods and candidates for setting up; then lp.New.
func NewMarket(p Problem) *Market {
	m := &Market{pools: p.Pools, axes: p.Axes, roomDuals: make([]float64, p.Axes), numbers: make([]int, len(p.Pods))}
	for i := range m.numbers {
		m.numbers[i] = -1
	}
	if p.RoomOf != nil {
		m.roomDuals = p.RoomOf.roomDuals
	}
	of := m.demandClasses(p.Usable)
	if len(m.classes) == 0 {
		return m
	}
	for i, pods := range p.Pods {
		if pods.Count > 0 && of[pods.Usable] != nil {
			m.numbers[i] = len(m.pods)
			m.pods = append(m.pods, lp.Pods{Class: of[pods.Usable].index, Requests: pods.Requests, Count: pods.Count})
			m.usable = append(m.usable, p.Usable[pods.Usable])
		}
	}
	offerings, representedBy := m.representatives()
	m.offers = offerings
	m.program = lp.New(lp.Input{Axes: p.Axes, Classes: len(m.classes), Offerings: offerings, RepresentedBy: representedBy, Pods: m.pods})
	for i, pods := range p.Pods {
		m.total += m.Value(m.numbers[i]) * float64(pods.Count)
	}
	if p.Free != nil {
		m.roomDuals = m.program.ExistingRoomDuals(p.Free)
	}
	return m
}

// Program is the linear program; nil if no pod can use any offering. Its pods are those with a number.
func (m *Market) Program() *lp.Program { return m.program }

// Number is the number of some Pods in the program, by their index in the Problem; -1 if no offering holds them or there
// are none.
func (m *Market) Number(pods int) int { return m.numbers[pods] }

// Total is the value of all pods, in $/h, before any Resolve.
func (m *Market) Total() float64 { return m.total }

// Value is the value of one pod at the last prices, in $/h, by number; zero for -1.
func (m *Market) Value(number int) float64 {
	if m.program == nil || number < 0 {
		return 0
	}
	return m.program.Value(number)
}

// demandClasses finds the demand class of each list of candidates; nil for lists without offerings.
func (m *Market) demandClasses(usable [][]*nodepool.Candidates) []*demandClass {
	known, byLists := map[string]*demandClass{}, map[string]*demandClass{}
	out := make([]*demandClass, len(usable))
	var key []byte
	for i, lists := range usable {
		key = key[:0]
		for _, l := range lists {
			key = binary.AppendUvarint(key, uint64(l.ID()))
		}
		c, ok := byLists[string(key)]
		if !ok {
			c = m.classOf(m.pools.OfferingsOf(lists), known)
			byLists[string(key)] = c
		}
		out[i] = c
	}
	return out
}

// classOf returns the demand class of these offerings; nil if there are none.
func (m *Market) classOf(offers resources.Bitset, known map[string]*demandClass) *demandClass {
	var key []byte
	found := false
	for _, word := range offers {
		key = binary.LittleEndian.AppendUint64(key, word)
		found = found || word != 0
	}
	if !found {
		return nil
	}
	if c := known[string(key)]; c != nil {
		return c
	}
	if len(m.classes) == lp.MaxClasses {
		c := m.classes[lp.MaxClasses-1]
		for i, word := range offers {
			c.offerings[i] |= word
		}
		known[string(key)] = c
		return c
	}
	c := &demandClass{index: len(m.classes), offerings: offers}
	known[string(key)] = c
	m.classes = append(m.classes, c)
	return c
}

// maxPoolPremium limits how much more than elsewhere a pod may cost in the heaviest pool that takes it before it is better
// off waiting. Small differences are not worth waiting for, since a node elsewhere may not have room after all.
const maxPoolPremium = 1.1

// DearerInHeaviestPool reports whether a pod costs a good deal more in the heaviest pool that takes it, or in all pools
// of that weight, than elsewhere. Such a pod should wait until nodes are launched elsewhere, which it may join.
//
// Cost: one pass over the candidates of the pool.
func (m *Market) DearerInHeaviestPool(number int) bool {
	if number < 0 || len(m.usable[number]) == 0 || !m.program.Holds(number) {
		return false
	}
	requests, lists := resources.Vec(m.pods[number].Requests), m.usable[number]
	limit := m.program.Value(number) * maxPoolPremium
	for _, l := range lists {
		if l.Template().Weight() != lists[0].Template().Weight() {
			continue
		}
		for _, cand := range l.List() {
			if cand.Offering < 0 {
				return false // there is a reservation
			}
			if requests.Within(l.TypeOf(cand).Room()) && m.program.CostsAtMost(number, cand.Offering, cand.Price, limit) {
				return false
			}
		}
	}
	return true
}

// Duals are the dual prices of the candidate's offering, in $/h per unit of each axis. A reserved candidate has those of
// the type at its normal price. They are valid until the next solve, and not to be changed.
func (m *Market) Duals(ti *nodepool.Type, cand nodepool.Candidate) []float64 {
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

// LeastRoomValue, in $/h, keeps the price per value of an empty room finite.
const LeastRoomValue = 1e-9

// LeastCost is the least that a pod costs at dual prices on a new node of the lists: its share of the node, at the
// node's price; +Inf if none holds it.
//
// Cost: one pass over the candidates.
func (m *Market) LeastCost(requests resources.Vec, lists []*nodepool.Candidates) float64 {
	least := math.Inf(1)
	for _, l := range lists {
		for _, cand := range l.List() {
			ti := l.TypeOf(cand)
			if cand.Offering < 0 || !requests.Fits(ti.Room()) {
				continue
			}
			duals := m.Duals(ti, cand)
			least = min(least, cand.Price*cost(requests, duals)/max(LeastRoomValue, cost(ti.Room(), duals)))
		}
	}
	return least
}

// cost returns what an amount costs at dual prices.
func cost(amount resources.Vec, duals []float64) float64 {
	total := 0.0
	for i, x := range amount {
		total += float64(x) * duals[i]
	}
	return total
}

// dot is the sum of products.
func dot(v, o []float64) float64 {
	total := 0.0
	o = o[:len(v)]
	for i, x := range v {
		total += x * o[i]
	}
	return total
}
