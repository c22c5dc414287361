package schedule

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// identify finds the obstacle behind a refusal.
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

// cleared reports whether a refusal is no longer for one of these rules.
func cleared(why *refusal, codes ...Code) bool {
	return why == nil || !slices.Contains(codes, why.code)
}

// identifyLabels finds the label on which pod and pool conflict. Where waiving either requirement would help, it names
// the pool's, since the pod's requirement is what its author wants.
func (e *explainer) identifyLabels(q *probeCase, l waiver) obstacle {
	asked := q.requirements(l)
	if host := asked.Get(corev1.LabelHostname); host.Operator() == corev1.NodeSelectorOpIn ||
		host.Operator() == corev1.NodeSelectorOpDoesNotExist {
		return e.podObstacle(q, l, host.Key(), fmt.Sprintf("%s, and a new node has a name of its own", wording.Requirement(host)))
	}
	t := e.template(q.template, l)
	conflict, found := t.Requirements().Conflict(asked, e.sv.s.Labels.WellKnown)
	if !found {
		return e.identifyTypes(q, l, t, asked)
	}
	r := conflict.Incoming
	if r.Impossible() {
		return e.podObstacle(q, l, r.Key(), "contradictory values of "+r.Key())
	}
	if conflict.Undefined {
		return e.podObstacle(
			q,
			l,
			r.Key(),
			fmt.Sprintf("%s, a label that neither the pool nor its instance types have%s", wording.Requirement(r), e.hintKey(r.Key())),
		)
	}
	if e.unknownValue(r) {
		return e.podObstacle(q, l, r.Key(), fmt.Sprintf("%s, which no instance type has%s", wording.Requirement(r), e.hintValue(r)))
	}
	if r.Key() == karpv1.LabelNodePool {
		return e.podObstacle(q, l, r.Key(), wording.Requirement(r)+e.hintPool(r))
	}
	o := e.podObstacle(q, l, r.Key(), wording.Value(r))
	o.message = fmt.Sprintf("the pool allows only %s, and %s", wording.Requirement(conflict.Existing), o.message)
	if slices.Contains(e.poolKeys(q.template), r.Key()) && e.comesWithTypes(r.Key()) { // not a label that only the pool defines
		o.waiver = waiver{}.withoutPool(r.Key())
	}
	return o
}

// identifyTypes is identifyLabels for the case that pod and pool do not conflict, but no instance type satisfies both.
func (e *explainer) identifyTypes(q *probeCase, l waiver, t *nodepool.Template, asked requirement.Set) obstacle {
	for _, r := range asked.All() {
		if e.unknownValue(r) {
			return e.podObstacle(q, l, r.Key(), fmt.Sprintf("%s, which no instance type has%s", wording.Requirement(r), e.hintValue(r)))
		}
	}
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, Requirement, Volume) {
			return obstacle{
				code: Requirement, waiver: waiver{}.withoutPool(key),
				message: fmt.Sprintf(
					"the pool allows only %s, and no such instance type has %s",
					wording.Requirement(t.Requirements().Get(key)),
					extraRequirements(t, asked),
				),
			}
		}
	}
	for _, key := range firstSuspects(asked.Keys()) {
		o := e.podObstacle(q, l, key, wording.Requirement(asked.Get(key))+", which no instance type of the pool has")
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

// podObstacle is an obstacle in what the pod, or else its volume, requires of a label.
func (e *explainer) podObstacle(q *probeCase, l waiver, key, what string) obstacle {
	if !l.volume && q.volume.Defines(key) && (slices.Contains(l.pod, key) || !q.required.Defines(key)) {
		return obstacle{
			code:    Volume,
			message: fmt.Sprintf("%s can only be used in %s", e.volumeName(q, key), what),
			waiver:  waiver{volume: true},
		}
	}
	return obstacle{code: Requirement, message: "the pod requires " + what, waiver: waiver{}.withoutPod(key)}
}

// identifyTopology finds the constraint that leaves the pool's nodes no domain, and whether the pool's own requirements
// cause it.
func (e *explainer) identifyTopology(q *probeCase, l waiver) obstacle {
	views := q.class.views(q.class.levels[len(q.class.levels)-1])
	views = slices.DeleteFunc(slices.Clone(views), func(v view) bool { return slices.Contains(l.groups, v.g) })
	var culprits []view // waiving any one of them makes room
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
	for _, v := range views { // pods that keep apart from each other do so in both directions
		if v.g != culprit.g && v.keepsApart() && culprit.keepsApart() && v.g.key == culprit.g.key &&
			v.g.selector.String() == culprit.g.selector.String() {
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
			o.message = fmt.Sprintf("the pool allows only %s, and %s", wording.Requirement(q.template.Requirements().Get(key)), o.message)
			return o
		}
	}
	reqs := e.template(q.template, l).Requirements().Intersect(q.requirements(l))
	if places := e.sv.domainsOf(culprit.g, reqs); key != corev1.LabelHostname && len(places) > 0 {
		o.message += "; a node of this pool for it can only be in " + wording.List(places)
	}
	return o
}

// identifySize describes which request is too large, and which rule excludes larger types, if one does.
func (e *explainer) identifySize(q *probeCase, l waiver) obstacle {
	words := e.describeSize(q, l)
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, Resources, Requirement) {
			return obstacle{
				code: Resources, waiver: waiver{}.withoutPool(key),
				message: fmt.Sprintf("the pool allows only %s: %s", wording.Requirement(q.template.Requirements().Get(key)), words),
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
				message: fmt.Sprintf("the pod requires %s: %s", wording.Requirement(q.required.Get(key)), words),
			}
		}
	}
	return obstacle{code: Resources, message: words, final: true}
}
