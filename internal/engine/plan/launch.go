package plan

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// CapacityTypes returns those of the available offerings that the launch's requirements admit, sorted.
func (l *Launch) CapacityTypes() []string {
	seen := map[string]bool{}
	for _, it := range l.InstanceTypes {
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.Available && !seen[o.CapacityType] && l.Requirements.Overlaps(o.Requirements) {
				seen[o.CapacityType] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// ClaimRequirements returns the requirements of the NodeClaim to create, sorted by key: those of the launch, the
// instance types by name (cheapest first), and the available capacity types.
func (l *Launch) ClaimRequirements() []karpv1.Requirement {
	capacityTypes := l.Requirements.Get(karpv1.LabelCapacityType)
	allowed := l.CapacityTypes()
	if len(allowed) < capacityTypes.MinValues() {
		// minValues counts what types can be at all, available or not; the API server rejects a list shorter than it.
		for _, it := range l.InstanceTypes {
			allowed = append(allowed, it.Requirements.Get(karpv1.LabelCapacityType).Values()...)
		}
		allowed = slices.DeleteFunc(allowed, func(capacityType string) bool { return !capacityTypes.Has(capacityType) })
	}
	capacity := requirement.In(karpv1.LabelCapacityType, allowed...).WithMinValues(capacityTypes.MinValues())
	out := l.Requirements.Replace(capacity).Without(corev1.LabelInstanceTypeStable).API()
	types := karpv1.Requirement{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn}
	for _, it := range l.InstanceTypes {
		types.Values = append(types.Values, it.Name)
	}
	if n := l.Requirements.Get(types.Key).MinValues(); n > 0 {
		types.MinValues = &n
	}
	out = append(out, types)
	slices.SortStableFunc(out, func(a, b karpv1.Requirement) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// ClaimLabels are the labels of the NodeClaim to create: those of the pool's template, the pool and its node class, and
// one value for each requirement on a label that no other component sets.
func (l *Launch) ClaimLabels(labels requirement.Labels) map[string]string {
	out := map[string]string{karpv1.LabelNodePool: l.Pool.Name}
	maps.Copy(out, l.Pool.Spec.Template.Labels)
	for _, r := range l.Requirements.All() {
		if _, given := out[r.Key()]; given || labels.WellKnown[r.Key()] {
			continue
		}
		if v, ok := r.Example(); ok {
			out[r.Key()] = v
		}
	}
	return out
}

// Reservations are the capacity reservations that the launch takes, by the label of their ID.
func (l *Launch) Reservations(key string) []string {
	if key == "" || !l.Requirements.Defines(key) {
		return nil
	}
	if r := l.Requirements.Get(key); r.Operator() == corev1.NodeSelectorOpIn {
		return r.Values()
	}
	return nil
}
