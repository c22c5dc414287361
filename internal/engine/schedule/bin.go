package schedule

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// bin is a claim in the making.
//
// Invariant: on.list[first] is the cheapest type that holds all pods within limits, and reserved, which covers
// at least that type, has been taken off the template's left.
type bin struct {
	index int
	t     *template
	on    *candidates // what the bin may be, given what its pods require
	first int         // into on.list
	total vec
	pods  []*corev1.Pod
	// held counts the pods by class, in the order in which the classes came.
	held  []holding
	ports []hostPort
	// room is no less than what any type has that the bin may become without being pressed.
	room vec
	// cost is the price of the cheapest type.
	cost float64
	// target is the type that the bin was sized for; without being pressed it becomes nothing dearer than ceiling.
	target  candidate
	ceiling float64
	// seat is the reservation that the bin means to be launched into: see seats.
	seat int
	// shared are the volumes there that several pods use.
	shared map[attachment]bool
	// version counts the bin's changes, measured is the version at which room was exact.
	version, measured int
	reserved          vec
	// ways are how the pods with resource claims get their devices, one by one, and devices what they get.
	ways    []*way
	devices []DeviceUse
	// relaxed tells that minValues were lowered to what could be had.
	relaxed bool
}

type holding struct {
	c *class
	n int
}

// growth is what a bin becomes with one pod more.
type growth struct {
	on       *candidates
	first    int
	reserved vec // nil if the pool has no limits
	relaxed  bool
	seat     int
	// devices is how the pod gets its devices; nil if it asks for none.
	devices *way
}

// urgency says whether a bin may grow above its ceiling.
type urgency int

const (
	// thrifty: only into types that it was sized for.
	thrifty urgency = iota
	// pressing: the pod has no other place.
	pressing
)

// refusal is why a bin does not take a pod.
type refusal struct {
	code Code
	// never is true when nothing that can happen in this Solve will change it.
	never bool
}

// plain are the refusals by one rule, made once: final or not.
type plain [2]refusal

func newPlain(code Code) plain { return plain{{code, false}, {code, true}} }

// no is the refusal by a rule that often refuses.
func (sv *solver) no(code Code, never bool) *refusal {
	switch code {
	case Taint:
		return &sv.taint[btoi(never)]
	case Topology:
		return &sv.topology[btoi(never)]
	case Limits:
		return &sv.limit[btoi(never)]
	}
	return &sv.full[btoi(never)]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (sv *solver) newBin(t *template) *bin {
	sv.steps += len(t.types)
	return &bin{
		index: len(sv.bins), t: t, on: sv.candidates(t, t.reqs), total: make(vec, len(sv.axes.names)), target: candidate{t: -1}, ceiling: math.Inf(1),
		reserved: make(vec, len(t.limits.names)), measured: -1,
	}
}

// host stands for the host name that the bin's node will get.
func host(index int) string { return fmt.Sprintf("new-node-%06d.invalid", index) }

// ask is one pod asking a bin for room.
type ask struct {
	c     *class
	sh    *shape
	views []view
	u     urgency
}

// grow works out what the bin becomes if it takes a pod of the class in this shape.
func (sv *solver) grow(b *bin, c *class, sh *shape, u urgency) (growth, *refusal) {
	sv.steps++
	if sh.blocked.has(b.t.index) {
		return growth{}, sv.no(Taint, true)
	}
	if u == thrifty && b.room != nil && !sv.requestsIn(b, c).fitsBeside(b.total, b.room) {
		return growth{}, sv.no(Resources, true)
	}
	if len(c.ports) > 0 && c.clashes(b.ports) {
		return growth{}, &refusal{HostPort, true}
	}
	on, why := sv.narrow(b.on, sh.asks)
	if why != nil {
		return growth{}, why
	}
	a := ask{c: c, sh: sh, views: sv.views(b, c, sh), u: u}
	sv.steps += len(a.views)
	never := true
	for i, alt := range c.volumes {
		with := on
		if alt.set.Len() > 0 {
			if with, why = sv.narrow(on, alt); why != nil {
				never = never && why.never
				if i == len(c.volumes)-1 {
					return growth{}, &refusal{Volume, never}
				}
				continue
			}
		}
		var g growth
		if g, why = sv.furnish(b, a, with); why == nil {
			return g, nil
		}
		never = never && why.never
	}
	if never != why.never {
		why = &refusal{why.code, never}
	}
	return growth{}, why
}

// views are the class's views of its groups, as seen from the bin.
func (sv *solver) views(b *bin, c *class, sh *shape) []view {
	views := c.views(sh)
	if slices.ContainsFunc(views, func(v view) bool { return v.g.floating > 0 }) {
		views = slices.Clone(views)
		for i := range views {
			views[i].own = b.floating(views[i].g)
		}
	}
	return views
}

// settle picks domains for the views and finds the types that are left.
func (sv *solver) settle(b *bin, a ask, on *candidates) (growth, *refusal) {
	if len(a.views) == 0 {
		return sv.hold(b, a, on)
	}
	open := false // some domain is not settled yet
	for i := range a.views {
		v := &a.views[i]
		ok := false
		if v.g.key == corev1.LabelHostname {
			ok = v.allowsBin(b.index)
		} else if domain, single := on.domain(v.g.key); single {
			ok = v.allows(domain)
		} else {
			ok, open = true, true
		}
		if !ok {
			return growth{}, sv.no(Topology, v.forGood())
		}
	}
	if !open {
		g, why := sv.hold(b, a, on)
		if why != nil && why.never && !sv.onlyHosts(a.views) && why.code != Resources {
			why = &refusal{why.code, false}
		}
		return g, why
	}
	price := func(r requirement.Set) float64 { return sv.lowest(b, sv.candidates(b.t, r)) }
	choices, blocked := sv.choices(a.views, on.reqs, b.index, price)
	if blocked != nil {
		return growth{}, sv.no(Topology, blocked.forGood())
	}
	var last *refusal
	for _, choice := range choices {
		next := on
		if len(choice) > 0 {
			next = sv.candidates(b.t, on.reqs.With(choice...))
		}
		g, why := sv.hold(b, a, next)
		if why == nil {
			return g, nil
		}
		if last = why; why.never {
			last = &refusal{why.code, false}
		}
	}
	return growth{}, last
}

func (sv *solver) onlyHosts(views []view) bool {
	return !slices.ContainsFunc(views, func(v view) bool { return v.g.key != corev1.LabelHostname })
}

// hold finds the cheapest type that holds the bin's pods and one more, within limits, minValues and the ceiling.
func (sv *solver) hold(b *bin, a ask, on *candidates) (growth, *refusal) {
	t, asked := b.t, sv.requestsIn(b, a.c)
	first, limit := 0, math.Inf(1)
	if on == b.on {
		first = b.first
	}
	if a.u == thrifty {
		limit = b.ceiling
		if on != b.on && b.target.t >= 0 && on.priceOf(b.target) > limit {
			// What the pod requires makes the type that the bin was sized for dearer, for all pods in it.
			return growth{}, sv.no(Resources, true)
		}
	}
	blocked := t.conflictingGroups(b.ports, a.c.ports)
	limited := len(t.limits.names) > 0
	overLimit, taken := false, false
	for ; first < len(on.list); first++ {
		cand := on.list[first]
		if cand.price > limit {
			break
		}
		ti := &t.types[cand.t]
		if !asked.fitsBeside(b.total, ti.room) || (blocked != nil && blocked[ti.group]) {
			continue
		}
		if limited && !ti.capacity.withinSum(t.left, b.reserved) {
			overLimit = true
			continue
		}
		if !sv.may(b, cand, a.u) {
			taken = taken || cand.seat != 0
			continue
		}
		g := growth{on: on, first: first, seat: cand.seat}
		if limited {
			g.reserved = ti.capacity
		}
		if on.hasMin {
			grown, why := sv.holdMinima(b, a, g, blocked)
			if why != nil && cand.seat != 0 {
				continue // what everybody can buy leaves more choice
			}
			return grown, why
		}
		return g, nil
	}
	switch {
	case overLimit:
		return growth{}, sv.no(Limits, false)
	case taken:
		return growth{}, &refusal{Reserved, false}
	case sv.explaining:
		return growth{}, sv.noType(b, a.c, on.reqs, b.total.plus(asked))
	case a.u == thrifty && on == b.on:
		sv.measure(b)
	}
	// Bins never get emptier, but a bin on a choice of domains may have others.
	return growth{}, sv.no(Resources, true)
}

// measure makes the bin's room exact: the most that any type has that it may become without being pressed.
func (sv *solver) measure(b *bin) {
	if b.measured == b.version {
		return
	}
	b.measured = b.version
	if b.room == nil {
		b.room = make(vec, len(b.total))
	}
	clear(b.room)
	for _, cand := range b.on.list[b.first:] {
		if cand.price > b.ceiling {
			break
		}
		room := b.t.types[cand.t].room
		if !b.total.fits(room) {
			continue
		}
		for i, r := range room {
			b.room[i] = max(b.room[i], r)
		}
	}
}

// holdMinima is hold for requirements with minValues: the types left must have enough different values.
func (sv *solver) holdMinima(b *bin, a ask, g growth, blocked []bool) (growth, *refusal) {
	t, on := b.t, g.on
	types := sv.fitting(b, g, b.total.plus(sv.requestsIn(b, a.c)), blocked)
	missed, keep := t.minima(on.reqs, types)
	if len(missed) > 0 {
		if !sv.bestEffort || len(b.pods) > 0 || g.seat != 0 {
			return growth{}, &refusal{MinValues, true}
		}
		g.relaxed = true
		reqs := on.reqs
		for _, r := range reqs.All() {
			if n, ok := missed[r.Key()]; ok {
				reqs = reqs.Replace(r.WithMinValues(n))
			}
		}
		g.on = sv.candidates(t, reqs) // the same types in the same order
	}
	if len(t.limits.names) > 0 {
		g.reserved = make(vec, len(b.reserved))
		for _, cand := range types[:keep] {
			g.reserved = g.reserved.max(t.types[cand.t].capacity)
		}
	}
	return g, nil
}

// fitting lists the types from g.first on that hold total within what limits have left, in g's reservation or in none.
func (sv *solver) fitting(b *bin, g growth, total vec, blocked []bool) []candidate {
	return sv.appendFitting(nil, b, g, total, blocked)
}

func (sv *solver) appendFitting(out []candidate, b *bin, g growth, total vec, blocked []bool) []candidate {
	for _, cand := range g.on.list[g.first:] {
		ti := &b.t.types[cand.t]
		if cand.seat == g.seat && total.fits(ti.room) && (blocked == nil || !blocked[ti.group]) && ti.capacity.withinSum(b.t.left, b.reserved) {
			out = append(out, cand)
		}
	}
	return out
}

// conflictingGroups are the daemon groups whose host ports clash; nil if none does.
func (t *template) conflictingGroups(taken, more []hostPort) []bool {
	if len(taken)+len(more) == 0 || !slices.ContainsFunc(t.groups, func(g daemonGroup) bool { return len(g.ports) > 0 }) {
		return nil
	}
	out := make([]bool, len(t.groups))
	for i, g := range t.groups {
		out[i] = portsConflict(g.ports, taken) || portsConflict(g.ports, more)
	}
	return out
}

// put places the pod in the bin as grow said and counts it in its domains.
func (sv *solver) put(b *bin, c *class, pod *corev1.Pod, g growth) {
	t := b.t
	if g.on != b.on {
		sv.shift(b, g.on)
		b.room = nil
	}
	if g.reserved != nil {
		t.left = t.left.plus(b.reserved).minus(g.reserved)
		b.reserved = g.reserved
	}
	sv.seats.sit(b, g.seat)
	sv.furnishBin(b, pod, g)
	if len(b.pods) > 0 {
		sv.spent -= b.cost
	}
	b.cost = g.on.list[g.first].price
	sv.spent += b.cost
	b.first, b.relaxed = g.first, b.relaxed || g.relaxed
	for i, r := range sv.requestsIn(b, c) {
		b.total[i] += r
	}
	for _, a := range c.shared {
		if b.shared == nil {
			b.shared = map[attachment]bool{}
		}
		b.shared[a] = true
	}
	b.version++
	b.pods = append(b.pods, pod)
	b.ports = append(b.ports, c.ports...)
	if last := len(b.held) - 1; last >= 0 && b.held[last].c == c {
		b.held[last].n++
	} else if i := slices.IndexFunc(b.held, func(h holding) bool { return h.c == c }); i >= 0 {
		b.held[i].n++
	} else {
		b.held = append(b.held, holding{c, 1})
	}
	sv.count(b, c, 1)
}

// shift gives the bin narrower requirements and moves the counts of its pods accordingly.
func (sv *solver) shift(b *bin, on *candidates) {
	for _, h := range b.held {
		sv.count(b, h.c, -h.n)
	}
	b.on = on
	for _, h := range b.held {
		sv.count(b, h.c, h.n)
	}
}

// count adds n pods of a class in the bin to all groups that count them.
func (sv *solver) count(b *bin, c *class, n int) {
	sv.steps += len(c.matches) + len(c.declares)
	for _, list := range [...][]*group{c.matches, c.declares} {
		for _, g := range list {
			if !g.filter.admits(b.on.reqs, b.t.taints, sv.s.Labels.WellKnown) {
				continue
			}
			sv.touchGroup(g)
			if g.key == corev1.LabelHostname {
				g.addInBin(b.index, n)
				continue
			}
			if d, ok := b.on.domain(g.key); ok {
				g.add(d, n, g.filter.sure(b.on.reqs, b.t, sv.s.Labels.WellKnown))
				continue
			}
			domains := sv.domainsOf(g, b.on.reqs)
			// Whoever must be kept apart stays away from all places where the node may yet come up.
			// Whoever is attracted or spread needs to know the place.
			if len(domains) > 1 && (g.kind == spread || g.kind == affinity) {
				g.floating += n
				continue
			}
			for _, d := range domains {
				g.counts[d] += n
			}
		}
	}
}

// floating is how many pods of the bin the group counts without knowing their domain.
func (b *bin) floating(g *group) int {
	if g.floating == 0 {
		return 0
	}
	n := 0
	for _, h := range b.held {
		if slices.Contains(h.c.matches, g) {
			n += h.n
		}
	}
	return n
}
