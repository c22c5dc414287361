package podclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Zones under which pods are counted that are not bound to one zone.
const (
	// FlexibleZone is for pods that may go to several zones or have no requirement on zones.
	FlexibleZone = "flexible"
	// NoZone is for pods that fit in no zone.
	NoZone = "none"
)

// EffectiveZone is the zone that the requirements of the pods leave them, before anything is scheduled: a name,
// FlexibleZone or NoZone. Preferences do not count, since they would be dropped.
func (k *Constraints) EffectiveZone() string {
	const key = corev1.LabelTopologyZone
	own, volumes := zoneAlternatives(k.node), make([]requirement.Requirement, 0, len(k.volumes))
	for _, alt := range k.volumes {
		volumes = append(volumes, alt.Set.Get(key))
	}
	candidates, constrained := listedValues(own)
	if !constrained {
		candidates, constrained = listedValues(volumes)
	}
	has := func(alternatives []requirement.Requirement, zone string) bool {
		return slices.ContainsFunc(alternatives, func(r requirement.Requirement) bool { return r.Has(zone) })
	}
	for _, v := range k.Views(k.levels[len(k.levels)-1]) {
		if v.Key() != key {
			continue
		}
		v = v.Anywhere() // the pod's own requirement is applied below
		var valid []string
		for _, zone := range v.Group().Universe() {
			if v.Allows(zone) {
				valid = append(valid, zone)
			}
		}
		if !constrained {
			candidates, constrained = valid, true
			continue
		}
		candidates = slices.DeleteFunc(candidates, func(zone string) bool { return !slices.Contains(valid, zone) })
	}
	if !constrained {
		return FlexibleZone
	}
	candidates = slices.DeleteFunc(candidates, func(zone string) bool { return !has(own, zone) || !has(volumes, zone) })
	switch len(candidates) {
	case 0:
		return NoZone
	case 1:
		return candidates[0]
	}
	return FlexibleZone
}

// zoneAlternatives are the alternatives of what the pod requires of its zone.
func zoneAlternatives(node requirement.Pod) []requirement.Requirement {
	own := node.Selector.Get(corev1.LabelTopologyZone)
	if len(node.Required) == 0 {
		return []requirement.Requirement{own}
	}
	out := make([]requirement.Requirement, 0, len(node.Required))
	for _, term := range node.Required {
		out = append(out, own.Intersect(term.Get(corev1.LabelTopologyZone)))
	}
	return out
}

// listedValues are the values that the alternatives allow, if each of them lists some.
func listedValues(alternatives []requirement.Requirement) (values []string, ok bool) {
	for _, r := range alternatives {
		switch r.Operator() {
		case corev1.NodeSelectorOpIn:
			values = append(values, r.Values()...)
		case corev1.NodeSelectorOpDoesNotExist: // nothing satisfies it
		default:
			return nil, false
		}
	}
	slices.Sort(values)
	return slices.Compact(values), true
}
