package bin

import (
	"maps"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// MaxInstanceTypes limits how many types one claim names at most, cheapest first: as many as Karpenter names.
const MaxInstanceTypes = 600

// Failure is the pods of a bin that cannot be launched, and why.
type Failure struct {
	Pods []*corev1.Pod
	Why  rejection.Reason
}

// Launch turns the bins into claims, and removes those that cannot be launched from the set.
func (s *Set) Launch() (launches []plan.Launch, failed []Failure) {
	kept := s.all[:0]
	for _, b := range s.all {
		l, why := s.launch(b)
		if why.Code != "" {
			failed = append(failed, Failure{b.pods, why})
			continue
		}
		kept, launches = append(kept, b), append(launches, l)
	}
	s.all = kept
	return launches, failed
}

// launch turns a bin into a claim. The Reason is set when the types that one claim may name do not reach minValues.
func (s *Set) launch(b *Bin) (plan.Launch, rejection.Reason) {
	t := b.t
	l := plan.Launch{Pool: t.Pool(), Pods: slices.Clip(b.pods), MinValuesRelaxed: b.relaxed, Requirements: b.cands.ClaimRequirements()}
	all, blocked := []nodepool.Candidate(nil), s.blockedGroups(b, request{})
	if b.reservation == reservation.None {
		s.fittingBuf = t.Fitting(s.fittingBuf[:0], b.fitQuery(Growth{cands: b.cands, first: b.first}, b.total, blocked))
		all = s.fittingBuf
	} else {
		all = s.reservationTypes(b, blocked)
	}
	q := b.fitQuery(Growth{cands: b.cands, reservation: b.reservation}, b.total, blocked)
	b.reservedLimits = t.ReserveForClaim(nodepool.ClaimQuery{FitQuery: q, Types: all, Requirements: l.Requirements})
	types := s.launchBuf[:0]
	for _, cand := range all {
		// Any of the types may be launched, so none may count more against limits than was reserved.
		if t.TypeOf(cand).AgainstLimits().Within(b.reservedLimits) {
			types = append(types, cand)
		}
	}
	s.launchBuf = types
	q.Reserved = b.reservedLimits
	types, l.Requirements = t.KeepUnambiguous(types, l.Requirements, q)
	types, reserved := s.releaseUnusedSlots(b, all, types[:min(len(types), MaxInstanceTypes)])
	if l.Requirements.HasMinValues() {
		if missed, _ := t.MinValuesShortfall(l.Requirements, types); len(missed) > 0 {
			if !s.bestEffort {
				rule := nodepool.Shortfall(l.Requirements, missed)
				return plan.Launch{}, rejection.Reason{Code: rejection.MinValues, NodePool: t.Pool().Name, Rule: rule}
			}
			l.MinValuesRelaxed = true
			l.Requirements = nodepool.WithLoweredMinValues(l.Requirements, missed)
		}
	}
	list := t.Launch(types)
	l.InstanceTypes = list.Types
	l.Requirements = s.restrictToReservations(&l, b, types, reserved)
	l.Drivers, l.Devices = devices.Drivers(b.deviceOptions, l.InstanceTypes), b.devices
	l.Offering, _ = l.InstanceTypes[0].Cheapest(l.Requirements)
	l.Requests = maps.Clone(list.Overhead)
	b.addRequests(l.Requests, s.axes)
	return l, rejection.Reason{}
}

// addRequests adds what the bin's pods request to a total. Mostly they request whole units, which add up as numbers:
// quantities are made once per resource instead of once per class. A bin's sums do not overflow, since its room holds them.
func (b *Bin) addRequests(total corev1.ResourceList, axes resources.Axes) {
	var sums [podclass.MaxListedAxes]int64
	var like [podclass.MaxListedAxes]resource.Format // of the first amount, as Quantity.Add has it
	var all uint64
	for _, h := range b.contents {
		if h.class.Listed() == 0 && len(h.class.ResourceList()) > 0 {
			b.addQuantities(total)
			return
		}
		if added := h.class.Listed() &^ all; added != 0 {
			for left := added; left != 0; left &= left - 1 {
				axis := bits.TrailingZeros64(left)
				like[axis] = h.class.ResourceList()[axes.Name(axis)].Format
			}
			all |= added
		}
		for left := h.class.Listed(); left != 0; left &= left - 1 {
			axis := bits.TrailingZeros64(left)
			sums[axis] += int64(h.n) * h.class.Requests()[axis]
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
func (b *Bin) addQuantities(total corev1.ResourceList) {
	for _, h := range b.contents {
		for name, q := range h.class.ResourceList() {
			q = q.DeepCopy() // the class keeps the original
			q.Mul(int64(h.n))
			sum := total[name].DeepCopy()
			sum.Add(quantity.Clamp(q))
			total[name] = sum
		}
	}
}
