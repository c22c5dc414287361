package attribution

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Rule is a sort of constraint. The value is for people, and part of JSON output.
type Rule string

// The rules, in the order in which they are left out.
const (
	// ZoneSpread is topology spread with DoNotSchedule over zones, or over any other label but the hostname.
	ZoneSpread Rule = "zone spread"
	// ZoneAffinity is required pod affinity and anti-affinity over any label but the hostname.
	ZoneAffinity Rule = "zone affinity"
	// ZoneSelection is node selection by zone. Zones of volumes are facts, not rules.
	ZoneSelection Rule = "zone selection"
	// HostRules are topology spread with DoNotSchedule, and required pod affinity and anti-affinity, over hostnames.
	HostRules Rule = "host rules"
	// Preferences are preferred node affinity, pod affinity and anti-affinity, and spread with ScheduleAnyway.
	Preferences Rule = "preferences"
	// OnDemandOnly is a requirement on the capacity type that admits on-demand instances, but no spot instances.
	OnDemandOnly Rule = "on-demand only"
	// ReservedRules are requirements that admit nothing but capacity reservations, or certain ones, and those that admit
	// none where there are some.
	ReservedRules Rule = "reserved rules"
)

// rules are all of them, in order.
var rules = []Rule{ZoneSpread, ZoneAffinity, ZoneSelection, HostRules, Preferences, OnDemandOnly, ReservedRules}

// without returns a copy of the pod that does not declare the rule; the pod itself if it does not declare it.
func (r Rule) without(pod *corev1.Pod, labels *requirement.Labels) *corev1.Pod {
	c := podCopy{src: pod, labels: labels}
	onHost := func(key string) bool { return labels.Normalize(key) == corev1.LabelHostname }
	elsewhere := func(key string) bool { return !onHost(key) }
	switch r {
	case ZoneSpread:
		c.dropSpread(corev1.DoNotSchedule, elsewhere)
	case ZoneAffinity:
		c.dropPodTerms(elsewhere)
	case ZoneSelection:
		c.dropNodeRequirement(func(x requirement.Requirement) bool { return x.Key() == corev1.LabelTopologyZone })
	case HostRules:
		c.dropSpread(corev1.DoNotSchedule, onHost)
		c.dropPodTerms(onHost)
	case Preferences:
		c.dropSpread(corev1.ScheduleAnyway, func(string) bool { return true })
		c.dropPreferences()
	case OnDemandOnly:
		c.dropNodeRequirement(onDemandOnly)
	case ReservedRules:
		c.dropNodeRequirement(func(x requirement.Requirement) bool { return onReservations(x, labels) })
	}
	return c.result()
}

// onDemandOnly reports whether a requirement admits on-demand instances, but no spot instances.
func onDemandOnly(r requirement.Requirement) bool {
	return r.Key() == karpv1.LabelCapacityType && r.Has(karpv1.CapacityTypeOnDemand) && !r.Has(karpv1.CapacityTypeSpot)
}

// onReservations reports whether a requirement decides on the use of capacity reservations, and on nothing else that
// OnDemandOnly covers.
func onReservations(r requirement.Requirement, labels *requirement.Labels) bool {
	if r.Key() != karpv1.LabelCapacityType {
		return labels.ReservationID != "" && r.Key() == labels.ReservationID
	}
	only := !r.Has(karpv1.CapacityTypeOnDemand) && !r.Has(karpv1.CapacityTypeSpot)
	return !onDemandOnly(r) && r.Has(karpv1.CapacityTypeReserved) == only
}

// ofPool reports whether NodePools can declare the rule, and with which requirements.
func (r Rule) ofPool(x requirement.Requirement, labels *requirement.Labels) bool {
	switch r {
	case OnDemandOnly:
		return onDemandOnly(x)
	case ReservedRules:
		return onReservations(x, labels)
	case ZoneSelection:
		return x.Key() == corev1.LabelTopologyZone
	}
	return false
}

// podCopy edits a pod. It copies what it changes, and nothing else.
type podCopy struct {
	src, out *corev1.Pod
	labels   *requirement.Labels
}

// result is the edited copy, or the pod itself if nothing was changed.
func (c *podCopy) result() *corev1.Pod {
	if c.out == nil {
		return c.src
	}
	return c.out
}

// spec is the spec of the copy, to be changed.
func (c *podCopy) spec() *corev1.PodSpec {
	if c.out == nil {
		pod := *c.src
		c.out = &pod
	}
	return &c.out.Spec
}

// affinity is the affinity of the copy, to be changed.
func (c *podCopy) affinity() *corev1.Affinity {
	spec := c.spec()
	if spec.Affinity == c.src.Spec.Affinity {
		a := *c.src.Spec.Affinity
		spec.Affinity = &a
	}
	return spec.Affinity
}

// dropSpread removes the topology spread constraints of one sort over some labels.
func (c *podCopy) dropSpread(when corev1.UnsatisfiableConstraintAction, over func(key string) bool) {
	dropped := func(s corev1.TopologySpreadConstraint) bool {
		return s.WhenUnsatisfiable == when && over(s.TopologyKey)
	}
	if list := c.src.Spec.TopologySpreadConstraints; slices.ContainsFunc(list, dropped) {
		c.spec().TopologySpreadConstraints = slices.DeleteFunc(slices.Clone(list), dropped)
	}
}

// dropPodTerms removes required pod affinity and anti-affinity over some labels.
func (c *podCopy) dropPodTerms(over func(key string) bool) {
	dropped := func(t corev1.PodAffinityTerm) bool { return over(t.TopologyKey) }
	a := c.src.Spec.Affinity
	if a == nil {
		return
	}
	if near := a.PodAffinity; near != nil && slices.ContainsFunc(near.RequiredDuringSchedulingIgnoredDuringExecution, dropped) {
		less := *near
		less.RequiredDuringSchedulingIgnoredDuringExecution = slices.DeleteFunc(
			slices.Clone(near.RequiredDuringSchedulingIgnoredDuringExecution), dropped)
		c.affinity().PodAffinity = &less
	}
	if apart := a.PodAntiAffinity; apart != nil && slices.ContainsFunc(apart.RequiredDuringSchedulingIgnoredDuringExecution, dropped) {
		less := *apart
		less.RequiredDuringSchedulingIgnoredDuringExecution = slices.DeleteFunc(
			slices.Clone(apart.RequiredDuringSchedulingIgnoredDuringExecution), dropped)
		c.affinity().PodAntiAffinity = &less
	}
}

// dropPreferences removes all that the pod's affinity prefers.
func (c *podCopy) dropPreferences() {
	a := c.src.Spec.Affinity
	if a == nil {
		return
	}
	if node := a.NodeAffinity; node != nil && len(node.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		c.affinity().NodeAffinity = &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: node.RequiredDuringSchedulingIgnoredDuringExecution,
		}
	}
	if near := a.PodAffinity; near != nil && len(near.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		c.affinity().PodAffinity = &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: near.RequiredDuringSchedulingIgnoredDuringExecution,
		}
	}
	if apart := a.PodAntiAffinity; apart != nil && len(apart.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
		c.affinity().PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: apart.RequiredDuringSchedulingIgnoredDuringExecution,
		}
	}
}

// dropNodeRequirement removes requirements from the node selector and from required node affinity.
func (c *podCopy) dropNodeRequirement(dropped func(requirement.Requirement) bool) {
	for _, r := range c.labels.FromLabels(c.src.Spec.NodeSelector).All() {
		if dropped(r) {
			c.dropSelector(r.Key())
		}
	}
	a := c.src.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	terms, changed := c.withoutExpressions(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, dropped)
	if !changed {
		return
	}
	node := *a.NodeAffinity
	node.RequiredDuringSchedulingIgnoredDuringExecution = nil
	if len(terms) > 0 {
		node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	}
	c.affinity().NodeAffinity = &node
}

// dropSelector removes a label, however it is spelled, from the node selector.
func (c *podCopy) dropSelector(key string) {
	left := map[string]string{}
	for k, v := range c.result().Spec.NodeSelector {
		if c.labels.Normalize(k) != key {
			left[k] = v
		}
	}
	c.spec().NodeSelector = left
}

// withoutExpressions returns the terms of required node affinity without some expressions. A node needs to match one
// term only: where nothing is left of a term, every node matches, and so no term is returned.
func (c *podCopy) withoutExpressions(
	terms []corev1.NodeSelectorTerm,
	dropped func(requirement.Requirement) bool,
) (left []corev1.NodeSelectorTerm, changed bool) {
	free := false
	for _, t := range terms {
		exprs := slices.DeleteFunc(slices.Clone(t.MatchExpressions), func(x corev1.NodeSelectorRequirement) bool {
			r, err := c.labels.Parse(x.Key, x.Operator, x.Values...)
			return err == nil && dropped(r)
		})
		if len(exprs) < len(t.MatchExpressions) {
			changed = true
			free = free || len(exprs)+len(t.MatchFields) == 0
			t.MatchExpressions = exprs
		}
		left = append(left, t)
	}
	if free {
		return nil, true
	}
	return left, changed
}
