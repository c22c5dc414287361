package schedule

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// MaxInstanceTypes is how many types one claim names at most, cheapest first: as many as Karpenter names.
const MaxInstanceTypes = 600

// launch turns a bin into a claim. The Reason is set when the types that one claim may name do not reach minValues.
func (sv *solver) launch(b *bin) (Launch, Reason) {
	t := b.t
	l := Launch{Pool: t.Pool(), Pods: slices.Clip(b.pods), MinValuesRelaxed: b.relaxed, Requirements: b.cands.ClaimRequirements()}
	all, blocked := []nodepool.Candidate(nil), t.ConflictingGroups(b.ports, nil)
	if b.reservation == reservation.None {
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
	q := b.fitQuery(growth{cands: b.cands, reservation: b.reservation}, b.total, blocked)
	types, l.Requirements = t.KeepUnambiguous(types, l.Requirements, q)
	types, reserved := sv.releaseUnusedSlots(b, all, types[:min(len(types), MaxInstanceTypes)])
	if l.Requirements.HasMinValues() {
		if missed, _ := t.MinValuesShortfall(l.Requirements, types); len(missed) > 0 {
			if !sv.bestEffort {
				return Launch{}, Reason{Code: MinValues, NodePool: t.Pool().Name, Message: nodepool.DescribeShortfall(l.Requirements, missed)}
			}
			l.MinValuesRelaxed = true
			l.Requirements = nodepool.WithLoweredMinValues(l.Requirements, missed)
		}
	}
	list := t.Launch(types)
	l.InstanceTypes = list.Types
	l.Requirements = sv.restrictToReservations(&l, reserved)
	l.Drivers, l.Devices = b.drivers(l.InstanceTypes), b.devices
	l.Offering, _ = l.InstanceTypes[0].Cheapest(l.Requirements)
	l.Requests = maps.Clone(list.Overhead)
	b.addRequests(l.Requests, sv.axes)
	return l, Reason{}
}

// addRequests adds what the bin's pods request to a total. Mostly they request whole units, which add up as numbers:
// quantities are made once per resource instead of once per class. A bin's sums do not overflow, since its room holds them.
func (b *bin) addRequests(total corev1.ResourceList, axes resources.Axes) {
	var sums [maxListedAxes]int64
	var like [maxListedAxes]resource.Format // of the first amount, as Quantity.Add has it
	var all uint64
	for _, h := range b.contents {
		if h.class.listed == 0 && len(h.class.resourceList) > 0 {
			b.addQuantities(total)
			return
		}
		if added := h.class.listed &^ all; added != 0 {
			for left := added; left != 0; left &= left - 1 {
				axis := bits.TrailingZeros64(left)
				like[axis] = h.class.resourceList[axes.Name(axis)].Format
			}
			all |= added
		}
		for left := h.class.listed; left != 0; left &= left - 1 {
			axis := bits.TrailingZeros64(left)
			sums[axis] += int64(h.n) * h.class.requests[axis]
		}
	}
	for left := all; left != 0; left &= left - 1 {
		axis := bits.TrailingZeros64(left)
		name := axes.Name(axis)
		sum := total[name].DeepCopy() // Quantity.Add may write to memory that copies share
		sum.Add(quantity.New(name, sums[axis], like[axis]))
		total[name] = sum
	}
}

// addQuantities is addRequests for any quantities.
func (b *bin) addQuantities(total corev1.ResourceList) {
	for _, h := range b.contents {
		for name, q := range h.class.resourceList {
			q = q.DeepCopy() // the class keeps the original
			q.Mul(int64(h.n))
			sum := total[name].DeepCopy()
			sum.Add(quantity.Clamp(q))
			total[name] = sum
		}
	}
}

// maxListedAxes is the number of axes up to which a class knows those that its list names.
const maxListedAxes = 64

// listedAxes are the axes that the list names, if the amounts there are the very quantities of the list; else none. A
// quantity may be finer than the unit, zero, or beyond the largest number, and volumes may add to an axis.
func listedAxes(axes resources.Axes, list corev1.ResourceList, amounts resources.Vec) (out uint64) {
	if axes.Len() > maxListedAxes {
		return 0
	}
	for name, q := range list {
		axis, ok := axes.Lookup(name)
		if !ok || amounts[axis] <= 0 || !quantity.Exact(name, q, amounts[axis]) {
			return 0
		}
		out |= 1 << axis
	}
	return out
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
