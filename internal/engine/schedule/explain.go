package schedule

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Bounds of an explanation: ways of meeting a pod's node affinity and volumes that are looked at, and obstacles
// that are named per pool.
const (
	maxAlternatives = 8
	maxObstacles    = 8
	// maxSuspects is how many labels or topology rules are tried one by one to find which of them is an obstacle.
	maxSuspects = 64
)

// few are the first of a list, as many as are worth a closer look.
func firstSuspects[T any](list []T) []T { return list[:min(len(list), maxSuspects)] }

// explainer finds out why pods get no new node. It takes one obstacle after the other out of the way and asks the
// solver again, until the pod fits: what was taken away are the reasons, where it fits then is the nearest miss. The
// answer is the solver's own, so that a reason is true of it.
type explainer struct {
	sv *solver
	// seats are the solver's, with those of reservations that only some template in templates knows.
	slots reservationSlots
	// templates are what the solver's become without some of their pool's rules.
	templates map[string]*template
}

func newExplainer(sv *solver) *explainer {
	s := sv.slots
	s.number, s.ids, s.available = maps.Clone(s.number), slices.Clone(s.ids), slices.Clone(s.available)
	return &explainer{sv: sv, slots: s, templates: map[string]*template{}}
}

// begin lets the solver tell refusals apart, until the function that is returned is called.
func (e *explainer) begin() (end func()) {
	sv := e.sv
	steps := sv.steps
	sv.explaining = true
	sv.slots, e.slots = e.slots, sv.slots
	return func() {
		sv.explaining, sv.steps = false, steps
		sv.slots, e.slots = e.slots, sv.slots
	}
}

// lift is what is taken out of the way.
type waiver struct {
	taints, volume, ports, limits, minValues, availability bool
	// pool and pod are label keys on which the one or the other requires nothing any more.
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

// and joins two lifts.
func (l waiver) and(o waiver) waiver {
	return waiver{
		taints: l.taints || o.taints, volume: l.volume || o.volume, ports: l.ports || o.ports, limits: l.limits || o.limits,
		minValues: l.minValues || o.minValues, availability: l.availability || o.availability,
		pool: slices.Concat(l.pool, o.pool), pod: slices.Concat(l.pod, o.pod), groups: slices.Concat(l.groups, o.groups),
	}
}

// question is why a pool makes no node for pods of a class, by one of the ways in which these can be content.
type probeCase struct {
	template *template
	class    *class
	// insists is what the pod requires of labels, volume what its volumes do.
	required, volume requirement.Set
}

// asked is what pod and volumes require under a lift.
func (q *probeCase) requirements(l waiver) requirement.Set {
	set := q.required.Without(l.pod...)
	if !l.volume {
		set = set.Intersect(q.volume)
	}
	return set
}

// obstacle is one thing that keeps a pod off a pool's nodes.
type obstacle struct {
	code    Code
	message string
	waiver  waiver
	// final obstacles cannot be taken out of the way.
	final bool
}

// answer is all that keeps a pod off a pool's nodes by one way, and where it would go otherwise.
type diagnosis struct {
	obstacles []obstacle
	nearest   *Nearest
}

// questions are the ways in which a pool could serve the class: each alternative of required node affinity with each
// of its volumes' topologies.
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

// probe asks whether the pool would make a node for the pod under a lift.
func (e *explainer) probe(q *probeCase, l waiver) (growth, *refusal) {
	t := e.template(q.template, l)
	if t.unusable.Code != "" {
		return growth{}, &refusal{code: t.unusable.Code}
	}
	last := q.class.levels[len(q.class.levels)-1]
	strict := q.required.Without(l.pod...)
	level := &relaxationLevel{strict: strict, full: strict, internedStrict: e.sv.internSet(strict), internedFull: e.sv.internSet(strict), tolerations: last.tolerations, groups: last.groups, views: []view{}}
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
		k.setPorts(nil)
	}
	return e.sv.grow(e.sv.newBin(t), &c, level, ceilingIgnored)
}

// reaching is the group as it would be if the template's nodes could be wherever they now can.
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

// template is what the pool's would be under a lift.
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
		out.limitLeft = make(vec, len(out.limitLeft))
		for i := range out.limitLeft {
			out.limitLeft[i] = 1 << 60
		}
	}
	return &out
}

// pool is the template's pool under a lift.
func (e *explainer) pool(t *template, l waiver) *snapshot.Pool {
	out := *e.sourcePool(t)
	np := out.NodePool.DeepCopy()
	out.NodePool = np
	spec := &np.Spec.Template
	for _, key := range l.pool {
		spec.Spec.Requirements = slices.DeleteFunc(spec.Spec.Requirements, func(r karpv1.Requirement) bool { return e.sv.s.Labels.Normalize(r.Key) == key })
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

// source is the pool of the snapshot that the template was made of.
func (e *explainer) sourcePool(t *template) *snapshot.Pool {
	i := slices.IndexFunc(e.sv.s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == t.pool.Name })
	return &e.sv.s.Pools[i]
}

// own are the label keys that the pool's author has required something of, sorted.
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

// answer finds the obstacles of one way, and the smallest part of them that suffices.
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
			return a // which is for the next plan to tell, once there is nothing else
		}
		a.obstacles = append(a.obstacles, o)
		if o.final {
			return a
		}
		l = l.and(o.waiver)
	}
}

// needed drops obstacles that are none once the others are out of the way.
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

// certain tells whether the pod would fit where the solver says. What a pod asks of labels also decides which nodes its
// spread counts, and those were counted as it asks now.
func (a *diagnosis) nearestIsExact(q *probeCase) bool {
	relabelled := slices.ContainsFunc(a.obstacles, func(o obstacle) bool { return len(o.waiver.pod) > 0 })
	lifted := func(g *group) bool {
		return slices.ContainsFunc(a.obstacles, func(o obstacle) bool { return slices.Contains(o.waiver.groups, g) })
	}
	return !relabelled || !slices.ContainsFunc(q.class.levels[len(q.class.levels)-1].groups, func(g *group) bool {
		return g.typ == spread && g.key != corev1.LabelHostname && !lifted(g)
	})
}

// nearest is the cheapest place of a growth.
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

// identify names the obstacle behind a refusal.
func (e *explainer) identify(q *probeCase, l waiver, why *refusal) obstacle {
	switch why.code {
	case Taint:
		return obstacle{code: Taint, message: e.describeTaints(q), waiver: waiver{taints: true}}
	case Requirement, Volume:
		return e.identifyLabels(q, l)
	case Topology:
		return e.identifyTopology(q, l)
	case Limits:
		return obstacle{code: Limits, message: e.describeLimits(q, l), waiver: waiver{limits: true}}
	case MinValues:
		return obstacle{code: MinValues, message: e.describeMinValues(q, l), waiver: waiver{minValues: true}}
	case Reserved:
		return obstacle{code: Reserved, message: "nodes in flight take the capacity reservations that would fit", final: true}
	case Devices:
		return obstacle{code: Devices, message: e.describeDevices(q, l), final: true}
	case HostPort:
		return obstacle{code: HostPort, message: e.describePorts(q), waiver: waiver{ports: true}}
	case Offering:
		return obstacle{code: Offering, message: e.describeAvailability(q, l), waiver: waiver{availability: true}}
	}
	return e.identifySize(q, l)
}

// gone tells whether a refusal is no longer for one of these rules.
func cleared(why *refusal, codes ...Code) bool {
	return why == nil || !slices.Contains(codes, why.code)
}

// identifyLabels finds the label that pod and pool cannot agree on. Where lifting either would help it blames the
// pool, since what the pod asks for is what its author wants.
func (e *explainer) identifyLabels(q *probeCase, l waiver) obstacle {
	asked := q.requirements(l)
	if host := asked.Get(corev1.LabelHostname); host.Operator() == corev1.NodeSelectorOpIn || host.Operator() == corev1.NodeSelectorOpDoesNotExist {
		return e.podObstacle(q, l, host.Key(), fmt.Sprintf("%s, and a new node has a name of its own", requirementText(host)))
	}
	t := e.template(q.template, l)
	conflict, found := t.reqs.Conflict(asked, e.sv.s.Labels.WellKnown)
	if !found {
		return e.identifyTypes(q, l, t, asked)
	}
	r := conflict.Incoming
	if r.Impossible() {
		return e.podObstacle(q, l, r.Key(), "contradictory values of "+r.Key())
	}
	if conflict.Undefined {
		return e.podObstacle(q, l, r.Key(), fmt.Sprintf("%s, a label that neither the pool nor its instance types have%s", requirementText(r), e.hintKey(r.Key())))
	}
	if e.unknownValue(r) {
		return e.podObstacle(q, l, r.Key(), fmt.Sprintf("%s, which no instance type has%s", requirementText(r), e.hintValue(r)))
	}
	if r.Key() == karpv1.LabelNodePool {
		return e.podObstacle(q, l, r.Key(), requirementText(r)+e.hintPool(r))
	}
	o := e.podObstacle(q, l, r.Key(), valueText(r))
	o.message = fmt.Sprintf("the pool allows only %s, and %s", requirementText(conflict.Existing), o.message)
	if slices.Contains(e.poolKeys(q.template), r.Key()) && e.comesWithTypes(r.Key()) { // and not a label that only the pool can give
		o.waiver = waiver{}.withoutPool(r.Key())
	}
	return o
}

// identifyTypes is identifyLabels where pool and pod could agree, but no instance type has all of it.
func (e *explainer) identifyTypes(q *probeCase, l waiver, t *template, asked requirement.Set) obstacle {
	for _, r := range asked.All() {
		if e.unknownValue(r) {
			return e.podObstacle(q, l, r.Key(), fmt.Sprintf("%s, which no instance type has%s", requirementText(r), e.hintValue(r)))
		}
	}
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, Requirement, Volume) {
			return obstacle{
				code: Requirement, waiver: waiver{}.withoutPool(key),
				message: fmt.Sprintf("the pool allows only %s, and no such instance type has %s", requirementText(t.reqs.Get(key)), extraRequirements(t, asked)),
			}
		}
	}
	for _, key := range firstSuspects(asked.Keys()) {
		o := e.podObstacle(q, l, key, requirementText(asked.Get(key))+", which no instance type of the pool has")
		if _, why := e.probe(q, l.and(o.waiver)); cleared(why, Requirement, Volume) {
			if rest := asked.Without(key); rest.Len() > 0 {
				o.message += " together with " + extraRequirements(t, rest)
			}
			return o
		}
	}
	for _, v := range firstSuspects(q.class.views(q.class.levels[len(q.class.levels)-1])) {
		o := obstacle{code: Topology, message: e.describeView(v), waiver: waiver{}.withoutGroup(v.g)}
		if _, why := e.probe(q, l.and(o.waiver)); cleared(why, Requirement, Volume) {
			return o
		}
	}
	return obstacle{
		code: Requirement, message: fmt.Sprintf("the pod requires %s, which no instance type of the pool has", extraRequirements(t, asked)),
		waiver: waiver{volume: true}.withoutPod(q.required.Keys()...),
	}
}

// podObstacle is an obstacle that the pod, or else its volume, puts up by what it requires of a label.
func (e *explainer) podObstacle(q *probeCase, l waiver, key, what string) obstacle {
	if !l.volume && q.volume.Defines(key) && (slices.Contains(l.pod, key) || !q.required.Defines(key)) {
		return obstacle{code: Volume, message: fmt.Sprintf("%s can only be used in %s", e.volumeName(q, key), what), waiver: waiver{volume: true}}
	}
	return obstacle{code: Requirement, message: "the pod requires " + what, waiver: waiver{}.withoutPod(key)}
}

// identifyTopology finds the constraint that leaves the pool's nodes no place, and sees whether the pool's own choice
// of places is to blame.
func (e *explainer) identifyTopology(q *probeCase, l waiver) obstacle {
	views := q.class.views(q.class.levels[len(q.class.levels)-1])
	views = slices.DeleteFunc(slices.Clone(views), func(v view) bool { return slices.Contains(l.groups, v.g) })
	var culprits []view // removing any one of them makes room
	for _, v := range firstSuspects(views) {
		if _, why := e.probe(q, l.withoutGroup(v.g)); cleared(why, Topology) {
			culprits = append(culprits, v)
		}
	}
	if len(culprits) == 0 {
		culprits = views[:1]
	}
	culprit := culprits[0]
	o := obstacle{code: Topology, message: e.describeView(culprit), waiver: waiver{}.withoutGroup(culprit.g)}
	for _, v := range views { // whoever keeps away from its own kind is kept away by it, too
		if v.g != culprit.g && v.keepsApart() && culprit.keepsApart() && v.g.key == culprit.g.key && v.g.selector.String() == culprit.g.selector.String() {
			o.waiver = o.waiver.withoutGroup(v.g)
		}
	}
	for _, v := range culprits[1:] {
		o.message += ", and " + e.describeView(v)
	}
	key := culprit.g.key
	if slices.Contains(e.poolKeys(q.template), key) && !slices.Contains(l.pool, key) {
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, Topology, Requirement, Resources, Offering) {
			o.waiver = waiver{}.withoutPool(key)
			o.message = fmt.Sprintf("the pool allows only %s, and %s", requirementText(q.template.reqs.Get(key)), o.message)
			return o
		}
	}
	if places := e.sv.domainsOf(culprit.g, e.template(q.template, l).reqs.Intersect(q.requirements(l))); key != corev1.LabelHostname && len(places) > 0 {
		o.message += "; a node of this pool for it can only be in " + enumerate(places)
	}
	return o
}

// identifySize says what of the pod is too large, and which rule keeps larger types away, if one does.
func (e *explainer) identifySize(q *probeCase, l waiver) obstacle {
	words := e.describeSize(q, l)
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, Resources, Requirement) {
			return obstacle{
				code: Resources, waiver: waiver{}.withoutPool(key),
				message: fmt.Sprintf("the pool allows only %s: %s", requirementText(q.template.reqs.Get(key)), words),
			}
		}
	}
	for _, key := range firstSuspects(q.required.Keys()) {
		if slices.Contains(l.pod, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPod(key)); cleared(why, Resources, Requirement) {
			return obstacle{
				code: Resources, waiver: waiver{}.withoutPod(key),
				message: fmt.Sprintf("the pod requires %s: %s", requirementText(q.required.Get(key)), words),
			}
		}
	}
	return obstacle{code: Resources, message: words, final: true}
}

// reasons puts an answer into the form that is handed out.
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

// better tells whether a comes nearer to a place than b.
func (a *diagnosis) closer(b *diagnosis) bool {
	if (a.nearest != nil) != (b.nearest != nil) {
		return a.nearest != nil
	}
	return len(a.obstacles) < len(b.obstacles)
}

// inherent tells whether a label comes with instance types.
func (e *explainer) comesWithTypes(key string) bool {
	return e.anyType(func(it *catalog.InstanceType) bool { return it.Requirements.Defines(key) })
}

// unknownValue tells whether a requirement is on a label that comes with instance types, but met by none at all.
func (e *explainer) unknownValue(r requirement.Requirement) bool {
	return !r.AllowsAbsent() && e.comesWithTypes(r.Key()) && !e.anyType(func(it *catalog.InstanceType) bool {
		return it.Requirements.Defines(r.Key()) && it.Requirements.Get(r.Key()).Overlaps(r)
	})
}

func (e *explainer) anyType(is func(*catalog.InstanceType) bool) bool {
	return slices.ContainsFunc(e.sv.s.Pools, func(p snapshot.Pool) bool { return slices.ContainsFunc(p.InstanceTypes, is) })
}
