package lp

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// MaxClasses bounds the size of the program: a ClassSet is one 32-bit word.
const MaxClasses = 32

// ClassSet is a set of demand classes, by index.
type ClassSet uint32

// Add puts a demand class into the set.
func (s *ClassSet) Add(class int) { *s |= 1 << class }

// Has reports whether the set has the demand class.
func (s ClassSet) Has(class int) bool { return s&(1<<class) != 0 }

// len is the number of demand classes in the set.
func (s ClassSet) len() int { return bits.OnesCount32(uint32(s)) }

// Offering is a node that can be launched.
type Offering struct {
	// Room holds what the node has for pods, per axis.
	Room []int64
	// Price is in $/h, and positive.
	Price float64
	// Classes can use the offering. Offerings without any are left out.
	Classes ClassSet
}

// Pods are pods with equal requests that can use the same offerings.
type Pods struct {
	// Class is the demand class, below MaxClasses.
	Class int
	// Requests are the requests of one pod, per axis. They are not negative.
	Requests []int64
	// Count is the number of pods to plan.
	Count int
}

// Input describes what a program is made of. Offerings and Pods are known by their index from then on.
type Input struct {
	Axes      int // resources
	Classes   int // demand classes
	Offerings []Offering
	// RepresentedBy is by number of an offering the index of the one in Offerings that stands for it, which has the same room and classes
	// and costs no more; -1 if no pod can use it. Offerings are then known by their numbers. Nil if each stands for itself.
	RepresentedBy []int32
	Pods          []Pods
	// Partial makes the program look at few offerings most of the time: see searchPartially. It finds the same bound within
	// the gap at which solving stops, sooner where many offerings are on the frontier.
	Partial bool
}

// Left counts how many of some Pods are left to plan.
type Left struct {
	Pods  int // index into Input.Pods
	Count int
}

// Program is the linear program of one Input, with its last solution.
//
// Invariant: feasible duals of every column are dual-feasible at all times.
type Program struct {
	axes    int
	partial bool // see Input.Partial
	classes []demandClass
	columns []column
	// representedBy is Input.RepresentedBy. representative maps each offering of the input to its column, or to one that dominates it; -1
	// where no pod can use it. See columnOf.
	representedBy, representative []int32
	// frontier are the columns that no other beats, cheapest first: see findFrontier.
	frontier  []*column
	pods      []podGroup
	axesInUse []int     // axes that some pod requests
	scale     []float64 // the largest room per axis
	buckets   []bucket
	master    masterLP

	// On the axes in use, in units of scale: one unit of each bucket, one pod of each group, the room of each column.
	amounts, requests, sizes quads
	// feasible are the duals of each column, scaled so that the whole room costs its price; bestFeasible holds those of the
	// best bound so far.
	feasible, bestFeasible quads
	// first are the feasible duals at the end of New.
	first quads
	// stabilityCenter are the best dual-feasible prices of buckets so far; try holds those of this round.
	stabilityCenter, try []float64
	direction            []float64            // buffer of pricing LPs
	items                map[itemsKey][]int32 // of pricing LPs, which share them
	matching             []int                // buffer of MatchingPatterns
	left                 []entry              // buffer of Content
	// Buffers of addPatterns.
	content     []entry
	offers      []patternOffer
	nearly      []*column
	newOfBucket []int
}

// demandClass is pods that can use the same offerings.
type demandClass struct {
	usable      []int   // indexes of columns, cheapest first
	frontier    []int   // those of them on the frontier
	maxRequests []int64 // per axis, the largest request of one pod
}

// podGroup is Pods in the program.
type podGroup struct {
	Pods
	norm   float64 // size of a pod as one number: the sum of its shares of the largest room
	bucket int     // -1 if none
	held   bool    // some offering has room for a pod
}

// column is an offering that no other dominates: a node that costs price and holds pods of some demand classes only.
type column struct {
	index    int
	best     int // the column of the frontier that beats this one; itself if none does
	room     []int64
	price    float64
	classes  ClassSet
	pricing  pricingLP
	patterns []int32 // of the master LP
	// duals are the prices per unit of each axis that prove how much value the room holds at the prices of the last
	// solve: no pod is worth more than it costs at them.
	duals []float64
}

// New makes the program and solves it.
//
// Cost: offerings times columns for setting up, then generateColumns with the full effort.
func New(in Input) *Program {
	p := newProgram(in)
	p.generateColumns(fullEffort)
	p.first = quads{p.feasible.stride, slices.Clone(p.feasible.list)}
	return p
}

// newProgram is New without a solution.
func newProgram(in Input) *Program {
	p := &Program{
		axes: in.Axes, partial: in.Partial, representedBy: in.RepresentedBy,
		classes: make([]demandClass, in.Classes), pods: make([]podGroup, len(in.Pods)),
	}
	for i := range p.classes {
		p.classes[i].maxRequests = make([]int64, in.Axes)
	}
	p.addPods(in)
	p.findAxesInUse()
	p.addColumns(in.Offerings)
	p.scaleAxes()
	p.findFrontier()
	p.makeBuckets()
	p.preparePricing()
	return p
}

// addPods copies the pods, and finds out which of them any offering holds. A pod that no offering holds, however large,
// must not distort the values of other pods.
func (p *Program) addPods(in Input) {
	largestFirst := make([]int, 0, len(in.Offerings))
	for i := range in.Offerings {
		if in.Offerings[i].Classes != 0 {
			largestFirst = append(largestFirst, i)
		}
	}
	slices.SortStableFunc(largestFirst, func(a, b int) int { return cmp.Compare(in.Offerings[b].Price, in.Offerings[a].Price) })
	for k := range in.Pods {
		g := &p.pods[k]
		g.Pods, g.bucket = in.Pods[k], -1
		g.held = slices.ContainsFunc(largestFirst, func(i int) bool {
			return in.Offerings[i].Classes.Has(g.Class) && within(g.Requests, in.Offerings[i].Room)
		})
		if !g.held {
			continue
		}
		most := p.classes[g.Class].maxRequests
		for axis, x := range g.Requests {
			most[axis] = max(most[axis], x)
		}
	}
}

// findAxesInUse lists the axes on which some pod requests something.
func (p *Program) findAxesInUse() {
	for axis := range p.axes {
		for k := range p.pods {
			if g := &p.pods[k]; g.held && g.Requests[axis] > 0 {
				p.axesInUse = append(p.axesInUse, axis)
				break
			}
		}
	}
}

// addColumns makes a column of each offering that no cheaper or equal one dominates: one with at least the same room,
// on the axes in use, and the same demand classes.
//
// Offerings of a type in other zones and capacity types share its room: the column of the cheapest is that of the others,
// too.
//
// Cost: rooms times columns.
func (p *Program) addColumns(offerings []Offering) {
	p.representative = make([]int32, len(offerings))
	cheapestFirst := make([]int, 0, len(offerings))
	for i := range offerings {
		p.representative[i] = -1
		if offerings[i].Classes != 0 {
			cheapestFirst = append(cheapestFirst, i)
		}
	}
	slices.SortFunc(cheapestFirst, func(a, b int) int {
		return cmp.Or(cmp.Compare(offerings[a].Price, offerings[b].Price), cmp.Compare(a, b))
	})
	known := map[roomKey]int{}
	for _, i := range cheapestFirst {
		o := &offerings[i]
		key := roomKey{&o.Room[0], o.Classes}
		k, ok := known[key]
		if !ok {
			k = p.columnFor(o)
			known[key] = k
		}
		p.representative[i] = int32(k)
	}
}

// roomKey identifies offerings with the same room, as a slice, and demand classes.
type roomKey struct {
	room    *int64
	classes ClassSet
}

// columnFor is the first column that dominates the offering, or a new one.
func (p *Program) columnFor(o *Offering) int {
	for k := range p.columns {
		if c := &p.columns[k]; o.Classes&^c.classes == 0 && p.dominated(o.Room, c.room) {
			return k
		}
	}
	k := len(p.columns)
	p.columns = append(p.columns, column{index: k, room: o.Room, price: o.Price, classes: o.Classes, duals: make([]float64, p.axes)})
	for j := range p.classes {
		if o.Classes.Has(j) {
			p.classes[j].usable = append(p.classes[j].usable, k)
		}
	}
	return k
}

// dominated reports whether a room has no more than another of anything that a pod requests.
func (p *Program) dominated(room, by []int64) bool {
	for _, axis := range p.axesInUse {
		if room[axis] > by[axis] {
			return false
		}
	}
	return true
}

// scaleAxes brings numbers to about one, for the simplex method: amounts are in units of the largest room.
func (p *Program) scaleAxes() {
	p.scale = make([]float64, p.axes)
	for _, axis := range p.axesInUse {
		for k := range p.columns {
			p.scale[axis] = max(p.scale[axis], float64(p.columns[k].room[axis]))
		}
	}
	p.sizes = newQuads(len(p.columns), len(p.axesInUse))
	for k := range p.columns {
		p.scaled(p.sizes.at(k), p.columns[k].room)
	}
	p.requests = newQuads(len(p.pods), len(p.axesInUse))
	for k := range p.pods {
		p.scaled(p.requests.at(k), p.pods[k].Requests)
	}
}

// scaled converts amounts to units of scale, on the axes in use.
func (p *Program) scaled(out []quad, amounts []int64) {
	for n, axis := range p.axesInUse {
		out[n/4][n%4] = float64(amounts[axis]) / p.scale[axis]
	}
}

// preparePricing gives each column its pricing LP over the buckets that it can hold, and dual-feasible prices to begin
// with.
func (p *Program) preparePricing() {
	axes := len(p.axesInUse)
	p.direction, p.items = make([]float64, axes), map[itemsKey][]int32{}
	rows := len(p.buckets)
	p.stabilityCenter, p.try = make([]float64, rows), make([]float64, rows)
	p.amounts = newQuads(rows, axes)
	for k := range p.buckets {
		copy(p.amounts.at(k), p.buckets[k].amount)
	}
	p.feasible, p.bestFeasible = newQuads(len(p.columns), axes), newQuads(len(p.columns), axes)
	for j := range p.columns {
		c := &p.columns[j]
		c.pricing = p.newPricingLP(p.sizes.at(j), c.classes)
		p.spreadPriceEvenly(c)
	}
	for j := range p.columns {
		if c := &p.columns[j]; c.best != j {
			p.followFrontier(c)
		}
	}
}

// newPricingLP is the pricing LP of a room, in units of scale, for pods of these demand classes.
func (p *Program) newPricingLP(room []quad, classes ClassSet) pricingLP {
	axes := len(p.axesInUse)
	numbers := make([]float64, axes*(axes+2)) // one allocation for all vectors
	f := pricingLP{
		size: numbers[:axes:axes], level: numbers[axes : axes : 2*axes], inverse: numbers[2*axes : 2*axes],
		basis: make([]int32, 0, axes), duals: make([]quad, p.sizes.stride),
	}
	key := itemsKey{classes: classes}
	for n := range f.size {
		f.size[n] = room[n/4][n%4]
		if f.size[n] <= 0 {
			key.missing |= 1 << (n % 64)
		}
	}
	known := false
	if len(f.size) <= 64 {
		f.items, known = p.items[key]
	}
	if !known {
		for k := range p.buckets {
			if b := &p.buckets[k]; classes.Has(b.class) && usesOnlyAxesOf(b.amount, room) {
				f.items = append(f.items, int32(k))
			}
		}
		p.items[key] = f.items
	}
	return f
}

// itemsKey identifies rooms that hold the same buckets, if there are up to 64 axes in use.
type itemsKey struct {
	classes ClassSet
	missing uint64 // axes in use of which the room has nothing
}

// Resolve solves the program again, for the pods that are left.
//
// Cost: that of generateColumns.
func (p *Program) Resolve(left []Left) {
	for k := range p.buckets {
		p.buckets[k].demand = 0
	}
	for _, l := range left {
		if g := &p.pods[l.Pods]; g.bucket >= 0 {
			p.buckets[g.bucket].demand += float64(float64(l.Count) * g.norm)
		}
	}
	p.generateColumns(p.resolveEffort())
}

// ResolveBelow is the share of the last solve's value of all pods below which Resolve pays: the dual prices of the rest
// may be different then.
func (p *Program) ResolveBelow() float64 { return p.resolveEffort().resolveBelow }

// within reports whether a room holds the requests.
func within(requests, room []int64) bool {
	room = room[:len(requests)]
	for i, x := range requests {
		if x > room[i] {
			return false
		}
	}
	return true
}

// Holds reports whether some offering has room for a pod.
func (p *Program) Holds(pods int) bool { return p.pods[pods].held }

// Value is the least that a pod costs at dual prices, over all offerings that hold it, in $/h. It is zero if none does.
// Beaten offerings do not matter: the better one holds the pod as well, and it costs no less on the beaten one (see
// followFrontier).
//
// Cost: one dot product per offering of the frontier. Room is compared last, since most already cost too much.
func (p *Program) Value(pods int) float64 {
	g := &p.pods[pods]
	if !g.held {
		return 0
	}
	least, requests := math.Inf(1), p.requests.at(pods)
	for _, k := range p.classes[g.Class].frontier {
		if v := dotQuads(requests, p.feasible.at(k)); v < least && within(g.Requests, p.columns[k].room) {
			least = v
		}
	}
	return least
}

// Duals are the prices per unit of each axis at which the offering holds no pod that is worth more than it costs; nil
// where no pod can use the offering. They are valid until the next solve, and not to be changed.
func (p *Program) Duals(offering int) []float64 {
	if k := p.columnOf(offering); k >= 0 {
		return p.columns[k].duals
	}
	return nil
}

// columnOf is the column of an offering, by its number; -1 where no pod can use it.
func (p *Program) columnOf(offering int) int {
	if p.representedBy != nil {
		if offering = int(p.representedBy[offering]); offering < 0 {
			return -1
		}
	}
	return int(p.representative[offering])
}

// CostsAtMost reports whether a pod costs at most limit on an offering, at dual-feasible prices, if the offering's
// price is the one given. Prices may differ, since equal nodes have one column, at the price of the cheapest.
func (p *Program) CostsAtMost(pods, offering int, price, limit float64) bool {
	k := p.columnOf(offering)
	if k < 0 {
		return false
	}
	return dotQuads(p.requests.at(pods), p.feasible.at(k))*price <= limit*p.columns[k].price
}

// FirstCost returns what a pod costs on an offering at the duals that New found, if the offering's price is the one given. On
// each offering the pods of a node together cost no more than the node. The offering must be one that some pod can use.
func (p *Program) FirstCost(pods, offering int, price float64) float64 {
	k := p.columnOf(offering)
	return dotQuads(p.requests.at(pods), p.first.at(k)) * price / p.columns[k].price
}

// CheapestNode is the price of the cheapest node that holds the pod; zero if none does.
func (p *Program) CheapestNode(pods int) float64 {
	g := &p.pods[pods]
	for _, k := range p.classes[g.Class].usable { // cheapest first; dropped offerings are dominated
		if c := &p.columns[k]; within(g.Requests, c.room) {
			return c.price * (1 - rounding)
		}
	}
	return 0
}

// ExistingRoomDuals bounds the value of a unit of room that is paid for already, per axis; free is how much of it there
// is. Pods of a demand class are worth no more than they cost on any one offering that holds the largest of them. Of
// these offerings it takes the one with the least total, which makes the bound as tight as one offering can.
//
// Invariant: no pod is worth more than its requests cost at the result. Call it after New, before Resolve.
func (p *Program) ExistingRoomDuals(free []float64) []float64 {
	all := make([]quad, p.sizes.stride)
	for n, axis := range p.axesInUse {
		all[n/4][n%4] = free[axis] / p.scale[axis]
		for k := range p.pods {
			if g := &p.pods[k]; g.held {
				all[n/4][n%4] += float64(p.requests.at(k)[n/4][n%4] * float64(g.Count))
			}
		}
	}
	out := make([]float64, p.axes)
	raise := func(k int) {
		duals := p.feasible.at(k)
		for n, axis := range p.axesInUse {
			out[axis] = max(out[axis], duals[n/4][n%4]/p.scale[axis])
		}
	}
	for j := range p.classes {
		d := &p.classes[j]
		best, least := -1, math.Inf(1)
		for _, k := range d.usable {
			if v := dotQuads(all, p.feasible.at(k)); v < least && within(d.maxRequests, p.columns[k].room) {
				best, least = k, v
			}
		}
		if best >= 0 {
			raise(best)
			continue
		}
		for _, k := range d.usable {
			raise(k)
		}
	}
	return out
}

// RoomValue is the most value of pods that a room can hold, at the prices of buckets that the last solve found.
func (p *Program) RoomValue(room []int64) float64 {
	var classes ClassSet
	for j := range p.classes {
		if len(p.classes[j].usable) > 0 {
			classes.Add(j)
		}
	}
	for _, axis := range p.axesInUse {
		if room[axis] < 0 {
			return 0
		}
	}
	size := make([]quad, p.sizes.stride)
	p.scaled(size, room)
	f := p.newPricingLP(size, classes)
	return f.solve(p.stabilityCenter, p.amounts, p.direction)
}

// Nodes returns how many nodes the last solution launches, in fractions.
func (p *Program) Nodes() float64 {
	total := 0.0
	for i, pattern := range p.master.basis {
		if pattern >= 0 {
			total += p.master.level[i]
		}
	}
	return total
}
