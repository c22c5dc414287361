package schedule

import (
	"maps"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
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
	q := b.fitQuery(growth{cands: b.cands, reservation: b.reservation}, b.total, blocked)
	b.reservedLimits = t.ReserveForClaim(nodepool.ClaimQuery{FitQuery: q, Types: all, Requirements: l.Requirements})
	types := sv.launchBuf[:0]
	for _, cand := range all {
		// Any of the types may be launched, so none may count more against limits than was reserved.
		if t.TypeOf(cand).AgainstLimits().Within(b.reservedLimits) {
			types = append(types, cand)
		}
	}
	sv.launchBuf = types
	q.Reserved = b.reservedLimits
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
	l.Requirements = sv.restrictToReservations(&l, b, types, reserved)
	l.Drivers, l.Devices = devices.Drivers(b.deviceOptions, l.InstanceTypes), b.devices
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
