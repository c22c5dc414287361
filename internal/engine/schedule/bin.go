package schedule

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// bin is a claim in the making.
//
// Invariant: types are those, cheapest first, that hold all pods and of which reserved covers at least the
// first; reserved has been taken off the template's left.
type bin struct {
	index int
	t     *template
	host  string // stands for the host name that the node will get
	reqs  requirement.Set
	total vec
	pods  []*corev1.Pod
	// held counts the pods by class, in the order in which the classes came.
	held  []holding
	ports []hostPort
	types []candidate
	room  vec // the most that any of types has, per axis
	// ceiling is the price up to which the bin grows freely; above it, another bin may cost less.
	ceiling float64
	// version counts the bin's changes.
	version  int
	reserved vec
	// relaxed tells that minValues were lowered to what could be had.
	relaxed bool
}

type holding struct {
	c *class
	n int
}

// growth is what a bin becomes with one pod more.
type growth struct {
	reqs     requirement.Set
	total    vec
	types    []candidate
	reserved vec
	relaxed  bool
}

// urgency says whether a bin may grow above its ceiling.
type urgency int

const (
	// thrifty: only if that costs no more than a bin for the pod alone.
	thrifty urgency = iota
	// pressing: the pod has no other place.
	pressing
)

// refusal is why a bin does not take a pod. Its words are made only when asked for.
type refusal struct {
	code Code
	// never is true when nothing that can happen in this Solve will change it.
	never bool
	say   func() string
}

func refuse(code Code, never bool, say func() string) *refusal { return &refusal{code, never, say} }

func (sv *solver) newBin(t *template) *bin {
	return &bin{
		index: len(sv.bins), t: t, host: fmt.Sprintf("new-node-%06d.invalid", len(sv.bins)),
		reqs: t.reqs, total: make(vec, len(sv.axes.names)), ceiling: math.Inf(1), reserved: make(vec, len(t.limits.names)),
	}
}

// grow works out what the bin becomes if it takes a pod of the class in this shape.
func (sv *solver) grow(b *bin, c *class, sh *shape, u urgency) (growth, *refusal) {
	if taint, blocked := snapshot.Untolerated(sh.tolerations, b.t.taints); blocked {
		return growth{}, refuse(Taint, true, func() string { return fmt.Sprintf("the pod does not tolerate taint %s", taintString(taint)) })
	}
	if portsConflict(c.ports, b.ports) {
		return growth{}, refuse(HostPort, true, func() string { return "a host port is taken" })
	}
	total := b.total.plus(c.requests)
	if b.room != nil && !total.fits(b.room) {
		return growth{}, refuse(Resources, true, func() string { return "the node is full" })
	}
	base, why := sv.narrow(b, sh, sh.full)
	if why != nil {
		return growth{}, why
	}
	views := c.views(sh)
	if slices.ContainsFunc(views, func(v view) bool { return v.g.floating > 0 }) {
		views = slices.Clone(views)
		for i := range views {
			views[i].own = b.floating(views[i].g)
		}
	}
	never := true
	for _, alt := range c.volumes {
		var g growth
		if g, why = sv.growWithVolumes(b, ask{c, total, views, u}, base, alt); why == nil {
			return g, nil
		}
		never = never && why.never
	}
	why.never = never
	return growth{}, why
}

func (sv *solver) growWithVolumes(b *bin, a ask, base, alt requirement.Set) (growth, *refusal) {
	if alt.Len() == 0 {
		return sv.settle(b, a, base)
	}
	reqs, why := sv.narrow(&bin{t: b.t, reqs: base}, nil, alt)
	if why != nil {
		say := why.say
		return growth{}, refuse(Volume, why.never, func() string { return "for its volumes " + say() })
	}
	return sv.settle(b, a, reqs)
}

// ask is what is asked of a bin: that it hold total, which includes a pod of class c, with the pod's view of topology.
type ask struct {
	c     *class
	total vec
	views []view
	u     urgency
}

// narrow adds what a pod or its volumes require to the bin's requirements.
func (sv *solver) narrow(b *bin, sh *shape, add requirement.Set) (requirement.Set, *refusal) {
	if sh != nil && sh.admitted.has(b.index) && len(b.pods) > 0 {
		return b.reqs, nil
	}
	if host := add.Get(corev1.LabelHostname); host.Operator() == corev1.NodeSelectorOpIn || host.Operator() == corev1.NodeSelectorOpDoesNotExist {
		return requirement.Set{}, refuse(Requirement, true, func() string { return fmt.Sprintf("asks for %s, but a new node has a name of its own", host) })
	}
	if conflict, found := b.reqs.Conflict(add, sv.s.Labels.WellKnown); found {
		return requirement.Set{}, refuse(Requirement, true, func() string { return "the pod " + conflict.String() })
	}
	return b.reqs.Intersect(add.Without(corev1.LabelHostname)), nil
}

// settle picks domains for the views and finds the types that are left.
func (sv *solver) settle(b *bin, a ask, reqs requirement.Set) (growth, *refusal) {
	price := func(r requirement.Set) float64 {
		if list := sv.candidates(b.t, r).list; len(list) > 0 {
			return list[0].price
		}
		return math.Inf(1)
	}
	choices, blocked := sv.choices(a.views, reqs, b.host, price)
	if blocked != nil {
		return growth{}, refuse(Topology, blocked.forGood(), func() string { return blocked.String() + " leaves no place" })
	}
	var last *refusal
	for _, choice := range choices {
		g, why := sv.hold(b, a, reqs.With(choice...))
		if why == nil {
			return g, nil
		}
		why.never = why.never && len(a.views) == 0
		last = why
	}
	return growth{}, last
}

// hold finds the types that hold total under reqs, within limits, minValues and the bin's ceiling.
func (sv *solver) hold(b *bin, a ask, reqs requirement.Set) (growth, *refusal) {
	t, c, total := b.t, a.c, a.total
	from := b.types
	if len(b.pods) == 0 || !reqs.Equal(b.reqs) {
		from = sv.candidates(t, reqs).list
	}
	allowance := t.left.plus(b.reserved)
	blockedGroups := t.conflictingGroups(b.ports, c.ports)
	var types []candidate
	overLimit := false
	for _, cand := range from {
		sv.steps++
		ti := &t.types[cand.t]
		if !total.fits(ti.room) || (blockedGroups != nil && blockedGroups[ti.group]) {
			continue
		}
		if !ti.capacity.within(allowance) {
			overLimit = true
			continue
		}
		if types == nil {
			if a.u == thrifty && sv.tooDear(b, c, reqs, cand.price) {
				return growth{}, refuse(Resources, false, func() string { return "another node costs less than a bigger one" })
			}
			types = make([]candidate, 0, len(from))
		}
		types = append(types, cand)
	}
	if len(types) == 0 {
		if overLimit {
			return growth{}, refuse(Limits, false, func() string { return sv.explainLimits(b, reqs, total) })
		}
		return growth{}, sv.noType(b, c, reqs, total)
	}
	g := growth{reqs: reqs, total: total, types: types}
	keep := 1
	if reqs.HasMinValues() {
		missed, length := t.minima(reqs, types)
		if len(missed) > 0 {
			if !sv.bestEffort || len(b.pods) > 0 {
				return growth{}, refuse(MinValues, true, func() string { return explainMinima(reqs, missed) })
			}
			g.relaxed = true
			for _, r := range reqs.All() {
				if n, ok := missed[r.Key()]; ok {
					g.reqs = g.reqs.Replace(r.WithMinValues(n))
				}
			}
		}
		keep = length
	}
	g.reserved = make(vec, len(b.reserved))
	for _, cand := range types[:keep] {
		g.reserved = g.reserved.max(t.types[cand.t].capacity)
	}
	return g, nil
}

// tooDear tells whether a bin that would then cost price had better leave the pod to a bin of its own.
func (sv *solver) tooDear(b *bin, c *class, reqs requirement.Set, price float64) bool {
	return price > b.ceiling && price-b.types[0].price > sv.alone(b.t, c, reqs)*(1+1e-9)
}

// alone is the price of the cheapest node for one pod of the class.
func (sv *solver) alone(t *template, c *class, reqs requirement.Set) float64 {
	for _, cand := range sv.candidates(t, reqs).list {
		if c.requests.fits(t.types[cand.t].room) {
			return cand.price
		}
	}
	return math.Inf(1)
}

// conflictingGroups are the daemon groups whose host ports clash; nil if none does.
func (t *template) conflictingGroups(taken, more []hostPort) []bool {
	if len(taken)+len(more) == 0 {
		return nil
	}
	out := make([]bool, len(t.groups))
	for i, g := range t.groups {
		out[i] = portsConflict(g.ports, taken) || portsConflict(g.ports, more)
	}
	return out
}

// put places the pod in the bin as grow said and counts it in its domains.
func (sv *solver) put(b *bin, c *class, sh *shape, pod *corev1.Pod, g growth) {
	t := b.t
	sv.shift(b, g.reqs)
	t.left = t.left.plus(b.reserved).minus(g.reserved)
	b.total, b.types, b.reserved, b.relaxed = g.total, g.types, g.reserved, b.relaxed || g.relaxed
	b.version++
	b.pods = append(b.pods, pod)
	b.ports = append(b.ports, c.ports...)
	if i := slices.IndexFunc(b.held, func(h holding) bool { return h.c == c }); i >= 0 {
		b.held[i].n++
	} else {
		b.held = append(b.held, holding{c, 1})
	}
	sh.admitted.add(b.index)
	b.room = slices.Clone(t.types[b.types[0].t].room)
	for _, cand := range b.types[1:] {
		b.room = b.room.max(t.types[cand.t].room)
	}
	sv.count(b, c, 1)
}

// shift gives the bin narrower requirements and moves the counts of its pods accordingly.
func (sv *solver) shift(b *bin, reqs requirement.Set) {
	if reqs.Equal(b.reqs) {
		return
	}
	for _, h := range b.held {
		sv.count(b, h.c, -h.n)
	}
	b.reqs = reqs
	for _, h := range b.held {
		sv.count(b, h.c, h.n)
	}
}

// count adds n pods of a class in the bin to all groups that count them.
func (sv *solver) count(b *bin, c *class, n int) {
	for _, list := range [][]*group{c.matches, c.declares} {
		for _, g := range list {
			if !g.filter.admits(b.reqs, b.t.taints, sv.s.Labels.WellKnown) {
				continue
			}
			if g.key == corev1.LabelHostname {
				g.counts[b.host] += n
				continue
			}
			domains := sv.domainsOf(g, b.reqs)
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
