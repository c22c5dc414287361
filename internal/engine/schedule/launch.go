package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
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
	l.Drivers, l.Devices = devices.Drivers(b.deviceOptions, l.InstanceTypes), b.devices
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
