package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
)

// MaxInstanceTypes is how many types one claim names at most, cheapest first: as many as Karpenter names.
const MaxInstanceTypes = 600

// launch turns a bin into a claim. The Reason is set when the types that one claim may name do not reach minValues.
func (sv *solver) launch(b *bin) (Launch, Reason) {
	t := b.t
	l := Launch{Pool: t.Pool(), Pods: slices.Clip(b.pods), MinValuesRelaxed: b.relaxed, Requirements: b.cands.ClaimRequirements()}
	all, blocked := []nodepool.Candidate(nil), t.ConflictingGroups(b.ports, nil)
	if b.reservation == 0 {
		sv.fittingBuf = t.Fitting(sv.fittingBuf[:0], b.fitQuery(growth{cands: b.cands, first: b.first}, b.total, blocked))
		all = sv.fittingBuf
	} else {
		all = sv.reservationTypes(b, blocked)
	}
	b.reservedLimits = t.ReserveForAll(all, b.reservedLimits)
	types := sv.launchBuf[:0]
	for _, cand := range all {
		// Any of the types may be launched, so none may count more against limits than was reserved.
		if t.TypeOf(cand).AgainstLimits().Within(b.reservedLimits) {
			types = append(types, cand)
		}
	}
	sv.launchBuf = types
	types, l.Requirements = t.KeepUnambiguous(types, l.Requirements, b.reservation != reservation.None)
	types, reserved := sv.releaseUnusedSlots(b, all, types[:min(len(types), MaxInstanceTypes)])
	if l.Requirements.HasMinValues() {
		if missed, _ := t.MinValuesShortfall(l.Requirements, types); len(missed) > 0 {
			if !sv.bestEffort {
				return Launch{}, Reason{Code: MinValues, NodePool: t.Pool().Name, Message: nodepool.DescribeShortfall(l.Requirements, missed)}
			}
			l.MinValuesRelaxed = true
		}
	}
	list := t.Launch(types)
	l.InstanceTypes = list.Types
	l.Requirements = sv.restrictToReservations(&l, reserved)
	l.Drivers, l.Devices = b.drivers(l.InstanceTypes), b.devices
	l.Offering, _ = l.InstanceTypes[0].Cheapest(l.Requirements)
	l.Requests = maps.Clone(list.Overhead)
	b.addRequests(l.Requests)
	return l, Reason{}
}

// addRequests adds what the bin's pods request to a total.
func (b *bin) addRequests(total corev1.ResourceList) {
	for _, h := range b.contents {
		for name, q := range h.class.resourceList {
			q = q.DeepCopy() // the class keeps the original
			q.Mul(int64(h.n))
			sum := total[name].DeepCopy() // Quantity.Add may write to memory that copies share
			sum.Add(quantity.Clamp(q))
			total[name] = sum
		}
	}
}

// CapacityTypes are those of the available offerings that the launch's requirements admit, sorted.
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
