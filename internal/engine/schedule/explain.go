package schedule

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Bounds of an explanation. Eight are more than a message can show; the search over them costs one probe each.
const (
	// maxAlternatives is how many combinations of node affinity terms and volume topologies are explained.
	maxAlternatives = 8
	// maxObstacles is how many obstacles are named per pool.
	maxObstacles = 8
	// maxSuspects is how many labels or topology constraints are tried one by one to find the obstacle.
	maxSuspects = 64
)

// firstSuspects are the first maxSuspects of a list.
func firstSuspects[T any](list []T) []T { return list[:min(len(list), maxSuspects)] }

// explainer finds out why pods get no new node. It waives one rule after the other and tries to grow a new bin, until
// the pod fits. The waived rules are the reasons, and where the pod fits then is the nearest miss. The decision is the
// solver's own, so every reason is true of the solver.
//
// An explainer lives from the end of a search, when the state of the solver is final, to the reasons for all pods that
// are left. It leaves nothing behind in the solver.
type explainer struct {
	sv *solver
	// known are the reasons by class.
	known map[*class][]Reason
	// slots are the solver's, plus those of reservations that only some template in templates has.
	slots reservation.Slots
	// templates are the solver's templates without some rules of their pools.
	templates map[string]*template
}

func newExplainer(sv *solver) *explainer {
	return &explainer{sv: sv, known: map[*class][]Reason{}, slots: sv.slots.Clone(), templates: map[string]*template{}}
}

// explain lists the pods that are left with the reasons why they get no node; nil if the plan is abandoned.
func (sv *solver) explain(left []*queuedPod) []Rejection {
	if len(left) == 0 {
		return nil
	}
	e := newExplainer(sv)
	out := make([]Rejection, 0, len(left))
	for _, q := range left {
		if e.known[q.class] == nil {
			e.known[q.class] = e.reasons(q.class)
		}
		if sv.stopRequested() {
			return nil
		}
		out = append(out, Rejection{Pod: q.pod, Reasons: e.known[q.class]})
	}
	return out
}

// begin gives the solver the explainer's slots, until the returned function is called. Explanations take no steps of the
// budget.
func (e *explainer) begin() (end func()) {
	sv := e.sv
	steps := sv.steps
	sv.slots, e.slots = e.slots, sv.slots
	return func() {
		sv.steps = steps
		sv.slots, e.slots = e.slots, sv.slots
	}
}

// waiver is a set of rules that do not count.
type waiver struct {
	taints, volume, ports, limits, minValues, availability bool
	// pool and pod are label keys on which the pool or the pod requires nothing.
	pool, pod []string
	// groups are topology constraints that do not count.
	groups []*group
}

func (l waiver) withoutPool(key string) waiver {
	l.pool = append(slices.Clone(l.pool), key)
	return l
}

func (l waiver) withoutPod(keys ...string) waiver {
	l.pod = slices.Concat(l.pod, keys)
	return l
}

func (l waiver) withoutGroup(g *group) waiver {
	l.groups = append(slices.Clone(l.groups), g)
	return l
}

// and joins two waivers.
func (l waiver) and(o waiver) waiver {
	return waiver{
		taints: l.taints || o.taints, volume: l.volume || o.volume, ports: l.ports || o.ports, limits: l.limits || o.limits,
		minValues: l.minValues || o.minValues, availability: l.availability || o.availability,
		pool: slices.Concat(l.pool, o.pool), pod: slices.Concat(l.pod, o.pod), groups: slices.Concat(l.groups, o.groups),
	}
}

// probeCase is one way in which a pool could make a node for pods of a class.
type probeCase struct {
	template *template
	class    *class
	// required are the label requirements of the pod, volume those of its volumes.
	required, volume requirement.Set
}

// requirements are those of pod and volumes under a waiver.
func (q *probeCase) requirements(l waiver) requirement.Set {
	set := q.required.Without(l.pod...)
	if !l.volume {
		set = set.Intersect(q.volume)
	}
	return set
}

// obstacle is one rule that keeps a pod off a pool's nodes.
type obstacle struct {
	code    Code
	message string
	waiver  waiver
	// final obstacles cannot be waived.
	final bool
}

// diagnosis is all obstacles in one probeCase, and where the pod would go without them.
type diagnosis struct {
	obstacles []obstacle
	nearest   *Nearest
}

// probeCases are the ways in which a pool could serve the class: each alternative of required node affinity with each
// alternative of its volumes' topologies.
func (e *explainer) probeCases(t *template, c *class) []probeCase {
	terms := c.node.Required
	if len(terms) == 0 {
		terms = []requirement.Set{{}}
	}
	var out []probeCase
	for _, term := range terms {
		for _, v := range c.volumes {
			if len(out) < maxAlternatives {
				out = append(out, probeCase{template: t, class: c, required: c.node.Selector.Intersect(term), volume: v.set})
			}
		}
	}
	return out
}

// probe tries to open a bin of the pool for the pod under a waiver.
func (e *explainer) probe(q *probeCase, l waiver) (growth, *refusal) {
	t := e.template(q.template, l)
	if t.unusable.Code != "" {
		return growth{}, &refusal{code: t.unusable.Code}
	}
	last := q.class.levels[len(q.class.levels)-1]
	strict := q.required.Without(l.pod...)
	level := &relaxationLevel{
		strict:         strict,
		full:           strict,
		internedStrict: e.sv.internSet(strict),
		internedFull:   e.sv.internSet(strict),
		tolerations:    last.tolerations,
		groups:         last.groups,
		views:          []view{},
	}
	if !l.taints {
		level.blocked = last.blocked
	}
	for _, v := range q.class.views(last) {
		if !slices.Contains(l.groups, v.g) {
			v.pod = strict.Get(v.g.key)
			if l.limits || slices.Contains(l.pool, v.g.key) {
				v.g = v.g.withDomainsOf(t)
			}
			level.views = append(level.views, v)
		}
	}
	k, c := *q.class.constraintClass, *q.class
	c.constraintClass = &k
	k.volumes = []internedSet{{}}
	if !l.volume {
		k.volumes[0] = e.sv.internSet(q.volume)
	}
	if l.ports {
		k.ports = resources.PortSet{}
	}
	return e.sv.grow(e.sv.newBin(t), &c, level, ceilingExplained)
}

// withDomainsOf is the group as if the template's nodes could be in all of their domains.
func (g *group) withDomainsOf(t *template) *group {
	if g.key == corev1.LabelHostname || !g.filter.admitsTaints(t.taints) {
		return g
	}
	out := *g
	out.universe = slices.Concat(g.universe, t.values(g.key))
	slices.Sort(out.universe)
	out.universe = slices.Compact(out.universe)
	out.usable = out.reachable()
	return &out
}

// template is the template of the pool under a waiver.
func (e *explainer) template(t *template, l waiver) *template {
	out := *t
	if len(l.pool) > 0 || l.minValues || l.availability {
		key := fmt.Sprintf("%d %q %t %t", t.index, slices.Sorted(slices.Values(l.pool)), l.minValues, l.availability)
		known := e.templates[key]
		if known == nil {
			known = e.sv.template(e.pool(t, l))
			known.index, known.limitLeft = t.index, t.limitLeft
			e.templates[key] = known
		}
		out = *known
	}
	if l.limits {
		out.limitLeft = make(resources.Vec, len(out.limitLeft))
		for i := range out.limitLeft {
			out.limitLeft[i] = 1 << 60
		}
	}
	return &out
}

// pool is the template's pool under a waiver.
func (e *explainer) pool(t *template, l waiver) *snapshot.Pool {
	out := *e.sourcePool(t)
	np := out.NodePool.DeepCopy()
	out.NodePool = np
	spec := &np.Spec.Template
	for _, key := range l.pool {
		spec.Spec.Requirements = slices.DeleteFunc(
			spec.Spec.Requirements,
			func(r karpv1.Requirement) bool { return e.sv.s.Labels.Normalize(r.Key) == key },
		)
		for k := range spec.Labels {
			if e.sv.s.Labels.Normalize(k) == key {
				delete(spec.Labels, k)
			}
		}
	}
	if l.minValues {
		for i := range spec.Spec.Requirements {
			spec.Spec.Requirements[i].MinValues = nil
		}
	}
	if l.availability {
		out.InstanceTypes = slices.Clone(out.InstanceTypes)
		for i, it := range out.InstanceTypes {
			full := *it
			full.Offerings = slices.Clone(it.Offerings)
			for k := range full.Offerings {
				full.Offerings[k].Available = true
			}
			out.InstanceTypes[i] = &full
		}
	}
	return &out
}

// sourcePool is the snapshot's pool of the template.
func (e *explainer) sourcePool(t *template) *snapshot.Pool {
	i := slices.IndexFunc(e.sv.s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == t.pool.Name })
	return &e.sv.s.Pools[i]
}

// poolKeys are the label keys that the pool's spec constrains, sorted.
func (e *explainer) poolKeys(t *template) []string {
	var keys []string
	for _, r := range t.pool.Spec.Template.Spec.Requirements {
		keys = append(keys, e.sv.s.Labels.Normalize(r.Key))
	}
	for k := range t.pool.Spec.Template.Labels {
		keys = append(keys, e.sv.s.Labels.Normalize(k))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// diagnose finds the obstacles of one case, and a minimal set of them that suffices.
//
// Invariant: obstacles grow by one per probe, so there are at most maxObstacles of them.
func (e *explainer) diagnose(q probeCase) diagnosis {
	var a diagnosis
	var l waiver
	for {
		g, why := e.probe(&q, l)
		if why == nil {
			if len(a.obstacles) > 0 {
				a.obstacles, g = e.minimize(&q, a.obstacles, g)
			}
			if a.nearestIsExact(&q) {
				a.nearest = nearest(g)
			}
			return a
		}
		if len(a.obstacles) == maxObstacles {
			return a
		}
		o := e.identify(&q, l, why)
		if o.code == Reserved && len(a.obstacles) > 0 {
			return a // the next plan decides, once this is the only obstacle
		}
		a.obstacles = append(a.obstacles, o)
		if o.final {
			return a
		}
		l = l.and(o.waiver)
	}
}

// minimize drops obstacles that are not needed once the others are waived.
func (e *explainer) minimize(q *probeCase, all []obstacle, g growth) ([]obstacle, growth) {
	for i := 0; i < len(all) && len(all) > 1; {
		rest := slices.Delete(slices.Clone(all), i, i+1)
		var l waiver
		for _, o := range rest {
			l = l.and(o.waiver)
		}
		if without, why := e.probe(q, l); why == nil {
			all, g = rest, without
			continue
		}
		i++
	}
	return all, g
}

// nearestIsExact reports whether the pod would fit where the solver found room. The label requirements of a pod also
// decide which nodes its spread counts, and those were counted with the present requirements.
func (a *diagnosis) nearestIsExact(q *probeCase) bool {
	relabelled := slices.ContainsFunc(a.obstacles, func(o obstacle) bool { return len(o.waiver.pod) > 0 })
	lifted := func(g *group) bool {
		return slices.ContainsFunc(a.obstacles, func(o obstacle) bool { return slices.Contains(o.waiver.groups, g) })
	}
	return !relabelled || !slices.ContainsFunc(q.class.levels[len(q.class.levels)-1].groups, func(g *group) bool {
		return g.typ == spread && g.key != corev1.LabelHostname && !lifted(g)
	})
}

// nearest is the cheapest offering of a growth.
func nearest(g growth) *Nearest {
	ti := &g.cands.t.types[g.cands.list[g.first].t]
	o, _ := ti.unreserved.Cheapest(g.cands.reqs)
	for _, r := range ti.reserved {
		if g.reservation != 0 && r.reservation == g.reservation && g.cands.reqs.Overlaps(r.offering.Requirements) {
			o = *r.offering
		}
	}
	return &Nearest{InstanceType: ti.Name, Zone: o.Zone, CapacityType: o.CapacityType}
}

// reasons converts a diagnosis into Reasons.
func (a *diagnosis) reasons(pool string) []Reason {
	out := make([]Reason, len(a.obstacles))
	for i, o := range a.obstacles {
		out[i] = Reason{Code: o.code, NodePool: pool, Message: o.message, Nearest: a.nearest}
	}
	switch {
	case a.nearest == nil:
	case len(out) == 1:
		out[0].Message = fmt.Sprintf("fits %s, but %s", a.nearest, out[0].Message)
	default:
		out[len(out)-1].Message += fmt.Sprintf("; but for these %d reasons it fits %s", len(out), a.nearest)
	}
	return out
}

// closer reports whether a has fewer obstacles to scheduling than b.
func (a *diagnosis) closer(b *diagnosis) bool {
	if (a.nearest != nil) != (b.nearest != nil) {
		return a.nearest != nil
	}
	return len(a.obstacles) < len(b.obstacles)
}

// comesWithTypes reports whether instance types define a label.
func (e *explainer) comesWithTypes(key string) bool {
	return e.anyType(func(it *catalog.InstanceType) bool { return it.Requirements.Defines(key) })
}

// unknownValue reports whether a requirement is on a label that instance types define, but that none of them satisfies.
func (e *explainer) unknownValue(r requirement.Requirement) bool {
	return !r.AllowsAbsent() && e.comesWithTypes(r.Key()) && !e.anyType(func(it *catalog.InstanceType) bool {
		return it.Requirements.Defines(r.Key()) && it.Requirements.Get(r.Key()).Overlaps(r)
	})
}

func (e *explainer) anyType(is func(*catalog.InstanceType) bool) bool {
	return slices.ContainsFunc(e.sv.s.Pools, func(p snapshot.Pool) bool { return slices.ContainsFunc(p.InstanceTypes, is) })
}
