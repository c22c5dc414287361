package bin

import (
	"cmp"
	"math"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// reservationAllows reports whether the bin may become the candidate, as far as reservations are concerned. A bin
// leaves its reservation, which is paid for, only for a pod that fits nowhere else.
func (s *Set) reservationAllows(b *Bin, cand nodepool.Candidate, u Mode) bool {
	return s.slots.Available(cand.Reservation, b.reservation) && (cand.Reservation != 0 || b.reservation == 0 || !u.bounded())
}

// CanBecome reports whether the bin could be sized for the candidate, as far as limits and reservations are concerned.
func (s *Set) CanBecome(b *Bin, cand nodepool.Candidate) bool {
	return b.t.WithinLimits(b.t.TypeOf(cand), b.reservedLimits) && s.reservationAllows(b, cand, BelowCeiling)
}

// lowest is the lowest price of the candidates available to the bin; +Inf if there is none.
func (s *Set) lowest(b *Bin, c *nodepool.Candidates) float64 {
	for _, cand := range c.List() {
		if s.slots.Available(cand.Reservation, b.reservation) {
			return cand.Price
		}
	}
	return math.Inf(1)
}

// reservationTypes lists what a bin in a reservation can be launched as: the types of its own reservation and of all
// others with a slot left, so that the launch has alternatives. It takes those slots; see releaseUnusedSlots.
func (s *Set) reservationTypes(b *Bin, blocked []bool) []nodepool.Candidate {
	var types []nodepool.Candidate
	for n := 1; n <= s.slots.Len(); n++ {
		if !s.slots.Available(n, b.reservation) {
			continue
		}
		more := b.t.Fitting(nil, b.fitQuery(Growth{cands: b.cands, reservation: n}, b.total, blocked))
		if len(more) > 0 && n != b.reservation {
			s.slots.Take(n)
		}
		types = append(types, more...)
	}
	slices.SortStableFunc(types, func(a, c nodepool.Candidate) int { return cmp.Compare(a.Price, c.Price) })
	return types
}

// releaseUnusedSlots returns the slots of reservations that no type of the launch is in. Its results are the types,
// each once, and the reservations that the launch keeps.
func (s *Set) releaseUnusedSlots(b *Bin, all, kept []nodepool.Candidate) (types []nodepool.Candidate, reserved []string) {
	if b.reservation == 0 {
		return kept, nil
	}
	var wanted, given resources.Bitset
	seen := map[int]bool{}
	for _, cand := range kept {
		if !wanted.Has(cand.Reservation) {
			wanted.Add(cand.Reservation)
			reserved = append(reserved, s.slots.ID(cand.Reservation))
		}
		if !seen[cand.Type] {
			types = append(types, cand)
		}
		seen[cand.Type] = true
	}
	for _, cand := range all {
		if cand.Reservation != b.reservation && !wanted.Has(cand.Reservation) && !given.Has(cand.Reservation) {
			given.Add(cand.Reservation)
			s.slots.Return(cand.Reservation)
		}
	}
	slices.Sort(reserved)
	return types, reserved
}

// restrictToReservations narrows a launch's requirements to the reservations that it keeps, or, without any, to
// capacity outside reservations.
func (s *Set) restrictToReservations(
	l *plan.Launch, b *Bin, types []nodepool.Candidate, reserved []string,
) requirement.Set {
	if len(reserved) > 0 {
		reqs := l.Requirements.With(requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved))
		if key := s.reservationLabel; key != "" {
			reqs = reqs.With(requirement.In(key, reserved...))
		}
		return reqs
	}
	if s.slots.Len() > 0 && b.t.ExcludesReservations(types, l.Requirements) {
		return l.Requirements.With(requirement.NotIn(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved))
	}
	return l.Requirements
}
