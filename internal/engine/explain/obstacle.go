package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// identify finds the obstacle behind a refusal.
func (e *Explainer) identify(q *nodeCase, l waiver, why rejection.Code) obstacle {
	switch why {
	case rejection.Taint:
		if missing := e.support.OnNew(q.template.Pool().Name, q.pods.Needs); missing != "" {
			return obstacle{code: rejection.Unsupported, message: "the pod needs " + missing, final: true}
		}
		return obstacle{code: rejection.Taint, message: e.describeTaints(q), waiver: waiver{taints: true}}
	case rejection.Requirement, rejection.Volume:
		return e.identifyLabels(q, l)
	case rejection.Topology:
		return e.identifyTopology(q, l)
	case rejection.Limits:
		return obstacle{code: rejection.Limits, message: e.describeLimits(q, l), waiver: waiver{limits: true}}
	case rejection.MinValues:
		return obstacle{code: rejection.MinValues, message: e.describeMinValues(q, l), waiver: waiver{minValues: true}}
	case rejection.Reserved:
		return obstacle{code: rejection.Reserved, message: "nodes in flight take the capacity reservations that would fit", final: true}
	case rejection.Devices:
		return obstacle{code: rejection.Devices, message: e.describeDevices(q, l), final: true}
	case rejection.HostPort:
		return obstacle{code: rejection.HostPort, message: e.describePorts(q), waiver: waiver{ports: true}}
	case rejection.Offering:
		return obstacle{code: rejection.Offering, message: e.describeAvailability(q, l), waiver: waiver{availability: true}}
	}
	return e.identifySize(q, l)
}

// cleared reports whether a refusal is no longer for one of these rules.
func cleared(why rejection.Code, codes ...rejection.Code) bool {
	return why == fits || !slices.Contains(codes, why)
}

// identifyLabels finds the label on which pod and pool conflict. Where waiving either requirement would help, it names
// the pool's, since the pod's requirement is what its author wants.
func (e *Explainer) identifyLabels(q *nodeCase, l waiver) obstacle {
	asked := q.requirements(l)
	t := e.template(q.template, l)
	for _, key := range []string{corev1.LabelHostname, requirement.FieldName} {
		if host := asked.Get(key); !host.Impossible() && asked.Defines(key) && !t.Requirements().Compatible(requirement.NewSet(host), nil) {
			return e.podObstacle(q, l, key, wording.Requirement(host)+", and a new node has a name of its own")
		}
	}
	conflict, found := t.Requirements().Conflict(asked, e.labels().WellKnown)
	if !found {
		return e.identifyTypes(q, l, t, asked)
	}
	r := conflict.Incoming
	if r.Impossible() {
		return e.podObstacle(q, l, r.Key(), "contradictory values of "+r.Key())
	}
	switch {
	case !conflict.Undefined && conflict.Existing.Unknown():
		return e.podObstacle(q, l, r.Key(), wording.Requirement(r)+", a label whose value is not known before a node joins")
	case conflict.Undefined && slices.Contains(e.labels().MaySetOnJoin, r.Key()):
		return e.podObstacle(q, l, r.Key(), wording.Requirement(r)+", a label that only some nodes get, after they have joined")
	case conflict.Undefined:
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
func (e *Explainer) identifyTypes(q *nodeCase, l waiver, t *nodepool.Template, asked requirement.Set) obstacle {
	for _, r := range asked.All() {
		if e.unknownValue(r) {
			return e.podObstacle(q, l, r.Key(), fmt.Sprintf("%s, which no instance type has%s", wording.Requirement(r), e.hintValue(r)))
		}
	}
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, rejection.Requirement, rejection.Volume) {
			return obstacle{
				code: rejection.Requirement, waiver: waiver{}.withoutPool(key),
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
		if _, why := e.probe(q, l.and(o.waiver)); cleared(why, rejection.Requirement, rejection.Volume) {
			if rest := asked.Without(key); rest.Len() > 0 {
				o.message += " together with " + extraRequirements(t, rest)
			}
			return o
		}
	}
	for _, c := range firstSuspects(q.pods.Search.Constraints()) {
		o := obstacle{code: rejection.Topology, message: c.Describe(q.template), waiver: waiver{}.withoutConstraint(c)}
		if _, why := e.probe(q, l.and(o.waiver)); cleared(why, rejection.Requirement, rejection.Volume) {
			return o
		}
	}
	return obstacle{
		code:    rejection.Requirement,
		message: fmt.Sprintf("the pod requires %s, which no instance type of the pool has", extraRequirements(t, asked)),
		waiver:  waiver{volume: true}.withoutPod(q.required.Keys()...),
	}
}

// podObstacle is an obstacle in what the pod, or else its volume, requires of a label.
func (e *Explainer) podObstacle(q *nodeCase, l waiver, key, what string) obstacle {
	if !l.volume && q.volume.Defines(key) && (slices.Contains(l.pod, key) || !q.required.Defines(key)) {
		return obstacle{
			code:    rejection.Volume,
			message: fmt.Sprintf("%s can only be used in %s", volumeName(q, key), what),
			waiver:  waiver{volume: true},
		}
	}
	return obstacle{code: rejection.Requirement, message: "the pod requires " + what, waiver: waiver{}.withoutPod(key)}
}

// identifyTopology finds the constraint that leaves the pool's nodes no domain, and whether the pool's own requirements
// cause it.
func (e *Explainer) identifyTopology(q *nodeCase, l waiver) obstacle {
	waived := func(c Constraint) bool { return slices.Contains(l.constraints, c) }
	constraints := slices.DeleteFunc(slices.Clone(q.pods.Search.Constraints()), waived)
	var culprits []Constraint // waiving any one of them makes room
	for _, c := range firstSuspects(constraints) {
		if _, why := e.probe(q, l.withoutConstraint(c)); cleared(why, rejection.Topology) {
			culprits = append(culprits, c)
		}
	}
	if len(culprits) == 0 {
		culprits = constraints[:1]
	}
	culprit := culprits[0]
	o := obstacle{code: rejection.Topology, message: culprit.Describe(q.template), waiver: waiver{}.withoutConstraint(culprit)}
	for _, c := range constraints { // pods that keep apart from each other do so in both directions
		if c != culprit && c.KeepsApart() && culprit.KeepsApart() && c.Key() == culprit.Key() && c.Selector() == culprit.Selector() {
			o.waiver = o.waiver.withoutConstraint(c)
		}
	}
	for _, c := range culprits[1:] {
		o.message += ", and " + c.Describe(q.template)
	}
	key := culprit.Key()
	if slices.Contains(e.poolKeys(q.template), key) && !slices.Contains(l.pool, key) {
		_, why := e.probe(q, l.withoutPool(key))
		if cleared(why, rejection.Topology, rejection.Requirement, rejection.Resources, rejection.Offering) {
			o.waiver = waiver{}.withoutPool(key)
			o.message = fmt.Sprintf("the pool allows only %s, and %s", wording.Requirement(q.template.Requirements().Get(key)), o.message)
			return o
		}
	}
	if key == corev1.LabelHostname {
		return o
	}
	if places := culprit.Domains(e.template(q.template, l).Requirements().Intersect(q.requirements(l))); len(places) > 0 {
		o.message += "; a node of this pool for it can only be in " + wording.List(places)
	}
	return o
}

// identifySize describes which request is too large, and which rule excludes larger types, if one does.
func (e *Explainer) identifySize(q *nodeCase, l waiver) obstacle {
	words := e.describeSize(q, l)
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, rejection.Resources, rejection.Requirement) {
			return obstacle{
				code: rejection.Resources, waiver: waiver{}.withoutPool(key),
				message: fmt.Sprintf("the pool allows only %s: %s", wording.Requirement(q.template.Requirements().Get(key)), words),
			}
		}
	}
	for _, key := range firstSuspects(q.required.Keys()) {
		if slices.Contains(l.pod, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPod(key)); cleared(why, rejection.Resources, rejection.Requirement) {
			return obstacle{
				code: rejection.Resources, waiver: waiver{}.withoutPod(key),
				message: fmt.Sprintf("the pod requires %s: %s", wording.Requirement(q.required.Get(key)), words),
			}
		}
	}
	return obstacle{code: rejection.Resources, message: words, final: true}
}
