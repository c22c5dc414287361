package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// identify finds the obstacle behind a refusal.
func (e *Explainer) identify(q *nodeCase, l waiver, why rejection.Code) obstacle {
	switch why {
	case rejection.Taint:
		if missing := e.support.OnNew(q.template.Pool().Name, q.pods.Needs); missing != nil {
			return obstacle{code: rejection.Unsupported, rule: &rejection.Rule{Missing: missing}, final: true}
		}
		return obstacle{code: rejection.Taint, rule: e.describeTaints(q), waiver: waiver{taints: true}}
	case rejection.Requirement, rejection.Volume:
		return e.identifyLabels(q, l)
	case rejection.Topology:
		return e.identifyTopology(q, l)
	case rejection.Limits:
		return obstacle{code: rejection.Limits, rule: e.describeLimits(q, l), waiver: waiver{limits: true}}
	case rejection.MinValues:
		return obstacle{code: rejection.MinValues, rule: e.describeMinValues(q, l), waiver: waiver{minValues: true}}
	case rejection.Reserved:
		return obstacle{code: rejection.Reserved, final: true}
	case rejection.Devices:
		return obstacle{code: rejection.Devices, rule: &rejection.Rule{ResourceClaims: e.describeDevices(q, l)}, final: true}
	case rejection.HostPort:
		return obstacle{code: rejection.HostPort, rule: e.describePorts(q), waiver: waiver{ports: true}}
	case rejection.Offering:
		return obstacle{code: rejection.Offering, rule: e.describeAvailability(q, l), waiver: waiver{availability: true}}
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
			return e.podObstacle(q, l, host, &rejection.Labels{Cause: rejection.NewNodeName})
		}
	}
	conflict, found := t.Requirements().Conflict(asked, e.labels().WellKnown)
	if !found {
		return e.identifyTypes(q, l, t, asked)
	}
	r := conflict.Incoming
	switch {
	case r.Impossible():
		return e.podObstacle(q, l, r, &rejection.Labels{Cause: rejection.Contradictory})
	case !conflict.Undefined && conflict.Existing.Unknown():
		return e.podObstacle(q, l, r, &rejection.Labels{Cause: rejection.UnknownBeforeJoin})
	case conflict.Undefined && slices.Contains(e.labels().MaySetOnJoin, r.Key()):
		return e.podObstacle(q, l, r, &rejection.Labels{Cause: rejection.OnlySomeNodes})
	case conflict.Undefined:
		return e.podObstacle(q, l, r, &rejection.Labels{Cause: rejection.Undefined, Similar: e.similarKey(r.Key())})
	case e.unknownValue(r):
		return e.podObstacle(q, l, r, e.withKnown(r, &rejection.Labels{Cause: rejection.UnknownValue}))
	case r.Key() == karpv1.LabelNodePool:
		return e.podObstacle(q, l, r, &rejection.Labels{Cause: rejection.OtherPool, Similar: e.similarPool(r)})
	}
	allowed := rejection.LabelOf(conflict.Existing)
	o := e.podObstacle(q, l, r, &rejection.Labels{Cause: rejection.PoolExcludes, Allowed: &allowed})
	if slices.Contains(e.poolKeys(q.template), r.Key()) && e.comesWithTypes(r.Key()) { // not a label that only the pool defines
		o.waiver = waiver{}.withoutPool(r.Key())
	}
	return o
}

// identifyTypes is identifyLabels for the case that pod and pool do not conflict, but no instance type satisfies both.
func (e *Explainer) identifyTypes(q *nodeCase, l waiver, t *nodepool.Template, asked requirement.Set) obstacle {
	for _, r := range asked.All() {
		if e.unknownValue(r) {
			return e.podObstacle(q, l, r, e.withKnown(r, &rejection.Labels{Cause: rejection.UnknownValue}))
		}
	}
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, rejection.Requirement, rejection.Volume) {
			allowed := rejection.LabelOf(t.Requirements().Get(key))
			return obstacle{
				code: rejection.Requirement, waiver: waiver{}.withoutPool(key), rule: &rejection.Rule{Labels: &rejection.Labels{
					Cause: rejection.NoTypeHas, By: rejection.ByPool, Allowed: &allowed, Required: extraRequirements(t, asked),
				}},
			}
		}
	}
	for _, key := range firstSuspects(asked.Keys()) {
		labels := &rejection.Labels{Cause: rejection.NoTypeHas}
		o := e.podObstacle(q, l, asked.Get(key), labels)
		if _, why := e.probe(q, l.and(o.waiver)); cleared(why, rejection.Requirement, rejection.Volume) {
			if rest := asked.Without(key); rest.Len() > 0 {
				labels.Combined, labels.With = true, extraRequirements(t, rest)
			}
			return o
		}
	}
	for _, c := range firstSuspects(q.pods.Search.Constraints()) {
		o := obstacle{code: rejection.Topology, rule: topologyRule(&rejection.Domains{}, q, c), waiver: waiver{}.withoutConstraint(c)}
		if _, why := e.probe(q, l.and(o.waiver)); cleared(why, rejection.Requirement, rejection.Volume) {
			return o
		}
	}
	return obstacle{
		code: rejection.Requirement, waiver: waiver{volume: true}.withoutPod(q.required.Keys()...), rule: &rejection.Rule{
			Labels: &rejection.Labels{Cause: rejection.NoTypeHas, By: rejection.ByPod, Required: extraRequirements(t, asked)},
		},
	}
}

// podObstacle is an obstacle in what the pod, or else its volume, requires of a label. It completes the rule with who requires what.
func (e *Explainer) podObstacle(q *nodeCase, l waiver, r requirement.Requirement, labels *rejection.Labels) obstacle {
	labels.By, labels.Required = rejection.ByPod, []rejection.Label{rejection.LabelOf(r)}
	rule, key := &rejection.Rule{Labels: labels}, r.Key()
	if !l.volume && q.volume.Defines(key) && (slices.Contains(l.pod, key) || !q.required.Defines(key)) {
		labels.By, labels.Claim = rejection.ByVolume, q.pods.Search.VolumeClaim(key)
		return obstacle{code: rejection.Volume, rule: rule, waiver: waiver{volume: true}}
	}
	return obstacle{code: rejection.Requirement, rule: rule, waiver: waiver{}.withoutPod(key)}
}

// topologyRule is the rule with more constraints.
func topologyRule(t *rejection.Domains, q *nodeCase, more ...Constraint) *rejection.Rule {
	for _, c := range more {
		t.Constraints = append(t.Constraints, c.Describe(q.template))
	}
	return &rejection.Rule{Domains: t}
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
	data := &rejection.Domains{}
	o := obstacle{code: rejection.Topology, rule: topologyRule(data, q, culprits...), waiver: waiver{}.withoutConstraint(culprit)}
	for _, c := range constraints { // pods that keep apart from each other do so in both directions
		if c != culprit && c.KeepsApart() && culprit.KeepsApart() && c.Key() == culprit.Key() && c.Selector() == culprit.Selector() {
			o.waiver = o.waiver.withoutConstraint(c)
		}
	}
	key := culprit.Key()
	if slices.Contains(e.poolKeys(q.template), key) && !slices.Contains(l.pool, key) {
		_, why := e.probe(q, l.withoutPool(key))
		if cleared(why, rejection.Topology, rejection.Requirement, rejection.Resources, rejection.Offering) {
			o.waiver = waiver{}.withoutPool(key)
			allowed := rejection.LabelOf(q.template.Requirements().Get(key))
			data.Pool = &allowed
			return o
		}
	}
	if key == corev1.LabelHostname {
		return o
	}
	data.Possible = rejection.NamesOf(culprit.Domains(e.template(q.template, l).Requirements().Intersect(q.requirements(l))))
	return o
}

// identifySize finds which request is too large, and which rule excludes larger types, if one does.
func (e *Explainer) identifySize(q *nodeCase, l waiver) obstacle {
	sizes := e.describeSize(q, l)
	o := obstacle{code: rejection.Resources, rule: &rejection.Rule{Sizes: sizes}}
	for _, key := range e.poolKeys(q.template) {
		if slices.Contains(l.pool, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPool(key)); cleared(why, rejection.Resources, rejection.Requirement) {
			allowed := rejection.LabelOf(q.template.Requirements().Get(key))
			sizes.Pool, o.waiver = &allowed, waiver{}.withoutPool(key)
			return o
		}
	}
	for _, key := range firstSuspects(q.required.Keys()) {
		if slices.Contains(l.pod, key) {
			continue
		}
		if _, why := e.probe(q, l.withoutPod(key)); cleared(why, rejection.Resources, rejection.Requirement) {
			required := rejection.LabelOf(q.required.Get(key))
			sizes.Pod, o.waiver = &required, waiver{}.withoutPod(key)
			return o
		}
	}
	o.final = true
	return o
}
