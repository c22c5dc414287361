package schedule

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// bin is a planned NodeClaim.
//
// Invariant: cands.list[first] is the cheapest type that holds all pods within limits. reservedLimits covers at least
// that type and has been subtracted from the template's limitLeft.
type bin struct {
	index int
	t     *nodepool.Template
	cands *nodepool.Candidates // what the bin can become under the requirements of its pods
	first int                  // index into cands.list
	total resources.Vec
	pods  []*corev1.Pod
	// contents counts the pods by class, in the order in which the classes came.
	contents []classCount
	ports    []resources.HostPort
	// room is an upper bound, per axis, on the room of any type that the bin can become below its ceiling.
	room resources.Vec
	// cost is the price of the cheapest type.
	cost float64
	// target is the type that the bin was sized for. Below the ceiling it becomes nothing that costs more.
	target  nodepool.Candidate
	ceiling float64
	// reservation is the capacity reservation that the bin is to be launched into: see package reservation.
	reservation int
	// sharedVolumes are the attached volumes that several pods use.
	sharedVolumes map[volume.Attachment]bool
	// version counts the bin's changes; roomVersion is the version at which room was exact.
	version, roomVersion int
	reservedLimits       resources.Vec
	// deviceOptions are how the pods with resource claims get their devices, one by one; devices is what they get.
	deviceOptions []*devices.Option
	devices       []DeviceUse
	// relaxed is true if minValues were lowered.
	relaxed bool
}

type classCount struct {
	class *class
	n     int
}

// growth is what a bin becomes with one more pod.
type growth struct {
	cands          *nodepool.Candidates
	first          int
	reservedLimits resources.Vec // nil if the pool has no limits
	relaxed        bool
	reservation    int
	// devices is how the pod gets its devices; nil if it requests none.
	devices *devices.Option
}

// ceilingMode decides whether a bin may become a type above its price ceiling.
type ceilingMode int

const (
	// ceilingEnforced: only types that cost no more than the one that the bin was sized for.
	ceilingEnforced ceilingMode = iota
	// ceilingIgnored: any type, since the pod fits nowhere else.
	ceilingIgnored
	// ceilingExplained is ceilingIgnored where the refusal names the exact rule, which plain planning does not need.
	ceilingExplained
)

// refusal is why a bin does not take a pod.
type refusal struct {
	code Code
	// final is true when nothing later in this Solve can change it.
	final bool
	// view and domain are the index of the view and the only domain of the bin that it does not allow; empty if the
	// refusal has another reason. No other reason can pass before this one.
	view   int
	domain string
}

// refusalPair are the refusals by one rule, not final and final, allocated once.
type refusalPair [2]refusal

func newRefusalPair(code Code) refusalPair {
	return refusalPair{{code: code}, {code: code, final: true}}
}

// refusal returns the preallocated refusal by one of the frequent rules.
func (sv *solver) refusal(code Code, never bool) *refusal {
	switch code {
	case Taint:
		return &sv.taintRefusal[btoi(never)]
	case Topology:
		return &sv.topologyRefusal[btoi(never)]
	case Limits:
		return &sv.limitRefusal[btoi(never)]
	}
	return &sv.fullRefusal[btoi(never)]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (sv *solver) newBin(t *nodepool.Template) *bin {
	sv.steps += len(t.Types())
	return &bin{
		index: len(sv.bins), t: t, cands: t.Candidates(t.Requirements()), total: make(resources.Vec, sv.axes.Len()),
		target: nodepool.Candidate{Type: -1}, ceiling: math.Inf(1), reservedLimits: t.NoLimits(), roomVersion: -1,
	}
}

// binRequest is one pod to add to a bin.
type binRequest struct {
	c     *class
	level *podclass.Level
	views []topology.View
	mode  ceilingMode
}

// grow computes what the bin becomes if it takes a pod of the class at this relaxation level.
//
// Cost: amortized O(axes) for a refusal by size, which is checked first; a table lookup for requirements; then a walk
// along the price list. No allocation unless topology has several domains to choose from.
func (sv *solver) grow(b *bin, c *class, level *podclass.Level, u ceilingMode) (growth, *refusal) {
	sv.steps++
	if level.Blocked().Has(b.t.Index()) {
		return growth{}, sv.refusal(Taint, true)
	}
	if u == ceilingEnforced && b.room != nil && !sv.requestsIn(b, c).FitsBeside(b.total, b.room) {
		return growth{}, sv.refusal(Resources, true)
	}
	if c.Ports().Len() > 0 && c.Ports().Clash(b.ports) {
		return growth{}, &refusal{code: HostPort, final: true}
	}
	cands := b.cands.Narrow(level.InternedFull())
	if cands == nil {
		return growth{}, &sv.requirementRefusal
	}
	a := binRequest{c: c, level: level, views: sv.views(b, c, level), mode: u}
	sv.steps += len(a.views)
	never, why := true, &sv.requirementRefusal
	for i, alt := range c.Volumes() {
		with := cands
		if alt.Set.Len() > 0 {
			if with = cands.Narrow(alt); with == nil {
				why = &sv.requirementRefusal
				if i == len(c.Volumes())-1 {
					return growth{}, &refusal{code: Volume, final: never}
				}
				continue
			}
		}
		var g growth
		if g, why = sv.allocateDevices(b, a, with); why == nil {
			return g, nil
		}
		never = never && why.final
	}
	if never != why.final || len(c.Volumes()) > 1 && why.domain != "" { // the other volumes' domains may open before
		why = &refusal{code: why.code, final: never}
	}
	return growth{}, why
}

// views are the class's views of its groups, from the perspective of the bin. They are valid until the next call.
func (sv *solver) views(b *bin, c *class, level *podclass.Level) []topology.View {
	views := c.Views(level)
	for _, i := range c.SortedViews(level).Affinities() {
		if views[i].CountsUndecided() {
			return sv.viewsWithUndecided(b, views)
		}
	}
	return views
}

// viewsWithUndecided are the views with the undecided pods in the bin.
func (sv *solver) viewsWithUndecided(b *bin, views []topology.View) []topology.View {
	sv.viewBuf = append(sv.viewBuf[:0], views...)
	for i := range sv.viewBuf {
		if v := &sv.viewBuf[i]; v.CountsUndecided() {
			v.SetUndecided(b.undecidedOf(v.Group()))
		}
	}
	return sv.viewBuf
}

// chooseDomains picks topology domains for the views, and finds the types that are left there.
func (sv *solver) chooseDomains(b *bin, a binRequest, cands *nodepool.Candidates) (growth, *refusal) {
	if len(a.views) == 0 {
		return sv.cheapestFit(b, a, cands)
	}
	open := false // some label can still have several values
	for i := range a.views {
		v := &a.views[i]
		if v.OverHosts() {
			if !v.AllowsNew(b.index) {
				return growth{}, sv.refusal(Topology, v.Permanent())
			}
		} else if domain, single := cands.Domain(v.Key()); !single {
			open = true
		} else if !v.Allows(domain) {
			sv.domainRefusal = refusal{code: Topology, view: i, domain: domain}
			return growth{}, &sv.domainRefusal
		}
	}
	if !open {
		g, why := sv.cheapestFit(b, a, cands)
		if why != nil && why.final && !sv.onlyHosts(a.views) && why.code != Resources {
			why = &refusal{code: why.code}
		}
		return g, why
	}
	choices := sv.choicesFor(b, a, cands)
	if choices.blocked != nil {
		return growth{}, choices.blocked
	}
	var last *refusal
	for k := range choices.list {
		g, why := sv.cheapestFit(b, a, sv.chosen(choices, k))
		if why == nil {
			return g, nil
		}
		if last = why; why.final {
			last = &refusal{code: why.code}
		}
	}
	return growth{}, last
}

func (sv *solver) onlyHosts(views []topology.View) bool {
	return !slices.ContainsFunc(views, func(v topology.View) bool { return !v.OverHosts() })
}

// cheapestFit finds the cheapest type that holds the bin's pods and one more, within limits, minValues and the ceiling.
//
// Invariant: bins only grow, so the search starts at b.first when the candidates are the same.
func (sv *solver) cheapestFit(b *bin, a binRequest, cands *nodepool.Candidates) (growth, *refusal) {
	t, asked := b.t, sv.requestsIn(b, a.c)
	first, limit := 0, math.Inf(1)
	if cands == b.cands {
		first = b.first
	}
	if a.mode == ceilingEnforced {
		limit = sv.ceilingOf(b)
		if cands != b.cands && b.target.Type >= 0 && cands.PriceOf(b.target) > limit {
			// The pod's requirements raise the price of the type that the bin was sized for, for all pods in it.
			return growth{}, sv.refusal(Resources, true)
		}
	}
	blocked := t.ConflictingGroups(b.ports, a.c.Ports().All())
	limited := t.HasLimits()
	overLimit, taken := false, false
	for ; first < len(cands.List()); first++ {
		cand := cands.List()[first]
		if cand.Price > limit {
			break
		}
		ti := t.TypeOf(cand)
		if !asked.FitsBeside(b.total, ti.Room()) || ti.BlockedBy(blocked) {
			continue
		}
		if limited && !t.WithinLimits(ti, b.reservedLimits) {
			overLimit = true
			continue
		}
		if !sv.reservationAllows(b, cand, a.mode) {
			taken = taken || cand.Reservation != 0
			continue
		}
		g := growth{cands: cands, first: first, reservation: cand.Reservation}
		if limited {
			g.reservedLimits = ti.AgainstLimits()
		}
		if cands.HasMinValues() {
			grown, why := sv.cheapestFitMinValues(b, a, g, blocked)
			if why != nil && cand.Reservation != 0 {
				continue // types outside reservations leave more choice
			}
			return grown, why
		}
		return g, nil
	}
	switch {
	case overLimit:
		return growth{}, sv.refusal(Limits, false)
	case taken:
		return growth{}, &refusal{code: Reserved}
	case a.mode == ceilingExplained:
		return growth{}, sv.noType(b, a.c, cands.Requirements(), b.total.Plus(asked))
	case a.mode == ceilingEnforced && cands == b.cands:
		sv.measureRoom(b)
	}
	// Bins never get emptier, but a bin on a choice of domains may have others.
	return growth{}, sv.refusal(Resources, true)
}

// measureRoom makes the bin's room exact: per axis, the most that any type has that the bin can become below its
// ceiling.
func (sv *solver) measureRoom(b *bin) {
	if b.roomVersion == b.version {
		return
	}
	b.roomVersion = b.version
	defer sv.noteRoom(b)
	if b.room == nil {
		b.room = make(resources.Vec, len(b.total))
	}
	clear(b.room)
	for _, cand := range b.cands.List()[b.first:] {
		if cand.Price > b.ceiling {
			break
		}
		room := b.t.TypeOf(cand).Room()
		if !b.total.Fits(room) {
			continue
		}
		for i, r := range room {
			b.room[i] = max(b.room[i], r)
		}
	}
}

// cheapestFitMinValues is cheapestFit for requirements with minValues: the types left must have enough distinct values.
func (sv *solver) cheapestFitMinValues(b *bin, a binRequest, g growth, blocked []bool) (growth, *refusal) {
	t, cands := b.t, g.cands
	q := b.fitQuery(g, b.total.Plus(sv.requestsIn(b, a.c)), blocked)
	types := t.Fitting(nil, q)
	if g.reservation != 0 && t.ChoosesOfferings(cands.Requirements()) {
		return growth{}, &refusal{code: MinValues, final: true}
	}
	missed, keep := t.MinValuesShortfall(cands.Requirements(), types)
	if len(missed) > 0 {
		if !sv.bestEffort || len(b.pods) > 0 || g.reservation != 0 {
			return growth{}, &refusal{code: MinValues, final: true}
		}
		g.relaxed = true
		g.cands = t.Candidates(nodepool.WithLoweredMinValues(cands.Requirements(), missed)) // the same types in the same order
	}
	if t.HasVariants() {
		claim := nodepool.ClaimQuery{FitQuery: q, Types: types, Requirements: g.cands.Requirements()}
		reserved, reached := t.LimitsForMinValues(claim, keep)
		if !reached && !sv.bestEffort {
			return growth{}, &refusal{code: MinValues}
		}
		if t.HasLimits() {
			g.reservedLimits = reserved
		}
	} else if t.HasLimits() {
		g.reservedLimits = t.LargestOf(types[:keep])
	}
	return g, nil
}

// fitQuery selects the types from the growth's first on that hold the total within the limits, in the growth's reservation
// or outside of all. Blocked are the daemon groups with a conflicting host port; nil if there are none.
func (b *bin) fitQuery(g growth, total resources.Vec, blocked []bool) nodepool.FitQuery {
	return nodepool.FitQuery{
		Candidates: g.cands, First: g.first, Reservation: g.reservation,
		Total: total, Reserved: b.reservedLimits, Blocked: blocked,
	}
}

// addToBin puts the pod into the bin as the growth describes, and counts it in its domains.
func (sv *solver) addToBin(b *bin, c *class, pod *corev1.Pod, g growth) {
	t := b.t
	if g.cands != b.cands {
		sv.narrowBin(b, g.cands)
		b.room = nil
	}
	if g.reservedLimits != nil {
		t.Reserve(b.reservedLimits, g.reservedLimits)
		b.reservedLimits = g.reservedLimits
	}
	sv.slots.Move(b.reservation, g.reservation)
	b.reservation = g.reservation
	sv.allocateBinDevices(b, pod, g)
	if len(b.pods) > 0 {
		sv.cost -= b.cost
	}
	b.cost = g.cands.List()[g.first].Price
	sv.cost += b.cost
	b.first, b.relaxed = g.first, b.relaxed || g.relaxed
	for i, r := range sv.requestsIn(b, c) {
		b.total[i] += r
	}
	for _, a := range c.shared {
		if b.sharedVolumes == nil {
			b.sharedVolumes = map[volume.Attachment]bool{}
		}
		b.sharedVolumes[a] = true
	}
	b.version++
	sv.noteRoom(b)
	b.pods = append(b.pods, pod)
	if sv.pricing != nil {
		sv.pricing.filled = b
	}
	b.ports = append(b.ports, c.Ports().All()...)
	if last := len(b.contents) - 1; last >= 0 && b.contents[last].class == c {
		b.contents[last].n++
	} else if i := slices.IndexFunc(b.contents, func(h classCount) bool { return h.class == c }); i >= 0 {
		b.contents[i].n++
	} else {
		b.contents = append(b.contents, classCount{c, 1})
	}
	sv.count(b, c, 1)
}

// narrowBin gives the bin narrower candidates and moves the counts of its pods accordingly.
func (sv *solver) narrowBin(b *bin, cands *nodepool.Candidates) {
	for _, h := range b.contents {
		sv.count(b, h.class, -h.n)
	}
	b.cands = cands
	for _, h := range b.contents {
		sv.count(b, h.class, h.n)
	}
}

// count adds n pods of a class in the bin to all groups that count them.
func (sv *solver) count(b *bin, c *class, n int) {
	sv.steps += len(c.Matches()) + len(c.Declares())
	at := topology.NewNode{Index: b.index, Labels: b.cands.Requirements(), Pool: forTopology(b.t), Outcomes: b.cands}
	for _, list := range [...][]*topology.Group{c.Matches(), c.Declares()} {
		for _, g := range list {
			sv.topology.CountNew(g, &at, n)
		}
	}
}

// undecidedOf is how many pods of the bin the group counts without knowing their domain.
func (b *bin) undecidedOf(g *topology.Group) int {
	if g.Undecided() == 0 {
		return 0
	}
	n := 0
	for _, h := range b.contents {
		if slices.Contains(h.class.Matches(), g) {
			n += h.n
		}
	}
	return n
}
