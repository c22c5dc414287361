package schedule

import (
	"cmp"
	"math"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// reservedFirst puts pods first that fit only into reservations, and of those the ones with the fewest reservations to
// choose from. Other pods can get any instance, and would leave them nothing.
func (sv *solver) reservedFirst(queue []*queuedPod) []*queuedPod {
	if sv.slots.Len() == 0 {
		return queue
	}
	choice := make(map[*class]int, len(sv.classes))
	for _, c := range sv.classes {
		choice[c] = sv.reservationChoices(c)
	}
	slices.SortStableFunc(queue, func(a, b *queuedPod) int { return cmp.Compare(choice[a.class], choice[b.class]) })
	slices.SortStableFunc(sv.classes, func(a, b *class) int { return cmp.Compare(choice[a], choice[b]) })
	return queue
}

// reservationChoices is how many reservations the pods fit into, if they fit on no other new node; else math.MaxInt.
func (sv *solver) reservationChoices(c *class) int {
	var reservations resources.Bitset
	n := 0
	for _, l := range sv.candidateLists(c.Constraints) {
		for _, cand := range l.List() {
			switch {
			case !c.requests.Fits(l.TypeOf(cand).Room()):
			case cand.Reservation == 0:
				return math.MaxInt
			case !reservations.Has(cand.Reservation):
				reservations.Add(cand.Reservation)
				n++
			}
		}
	}
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// reservationAllows reports whether the bin may become the candidate, as far as reservations are concerned. A bin
// leaves its reservation, which is paid for, only for a pod that fits nowhere else.
func (sv *solver) reservationAllows(b *bin, cand nodepool.Candidate, u ceilingMode) bool {
	return sv.slots.Available(cand.Reservation, b.reservation) && (cand.Reservation != 0 || b.reservation == 0 || u != ceilingEnforced)
}

// lowest is the lowest price of the candidates available to the bin; +Inf if there is none.
func (sv *solver) lowest(b *bin, c *nodepool.Candidates) float64 {
	for _, cand := range c.List() {
		if sv.slots.Available(cand.Reservation, b.reservation) {
			return cand.Price
		}
	}
	return math.Inf(1)
}

// reservationTypes lists what a bin in a reservation can be launched as: the types of its own reservation and of all
// others with a slot left, so that the launch has alternatives. It takes those slots; see releaseUnusedSlots.
func (sv *solver) reservationTypes(b *bin, blocked []bool) []nodepool.Candidate {
	var types []nodepool.Candidate
	for n := 1; n <= sv.slots.Len(); n++ {
		if !sv.slots.Available(n, b.reservation) {
			continue
		}
		more := b.t.Fitting(nil, b.fitQuery(growth{cands: b.cands, reservation: n}, b.total, blocked))
		if len(more) > 0 && n != b.reservation {
			sv.slots.Take(n)
		}
		types = append(types, more...)
	}
	slices.SortStableFunc(types, func(a, c nodepool.Candidate) int { return cmp.Compare(a.Price, c.Price) })
	return types
}

// releaseUnusedSlots returns the slots of reservations that no type of the launch is in. Its results are the types,
// each once, and the reservations that the launch keeps.
func (sv *solver) releaseUnusedSlots(b *bin, all, kept []nodepool.Candidate) (types []nodepool.Candidate, reserved []string) {
	if b.reservation == 0 {
		return kept, nil
	}
	var wanted, given resources.Bitset
	seen := map[int]bool{}
	for _, cand := range kept {
		if !wanted.Has(cand.Reservation) {
			wanted.Add(cand.Reservation)
			reserved = append(reserved, sv.slots.ID(cand.Reservation))
		}
		if !seen[cand.Type] {
			types = append(types, cand)
		}
		seen[cand.Type] = true
	}
	for _, cand := range all {
		if cand.Reservation != b.reservation && !wanted.Has(cand.Reservation) && !given.Has(cand.Reservation) {
			given.Add(cand.Reservation)
			sv.slots.Return(cand.Reservation)
		}
	}
	slices.Sort(reserved)
	return types, reserved
}

// restrictToReservations narrows a launch's requirements to the reservations that it keeps, or, without any, to
// capacity outside reservations.
func (sv *solver) restrictToReservations(l *Launch, b *bin, types []nodepool.Candidate, reserved []string) requirement.Set {
	if len(reserved) > 0 {
		reqs := l.Requirements.With(requirement.In(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved))
		if key := sv.s.Labels.ReservationID; key != "" {
			reqs = reqs.With(requirement.In(key, reserved...))
		}
		return reqs
	}
	if sv.slots.Len() > 0 && b.t.ExcludesReservations(types, l.Requirements) {
		return l.Requirements.With(requirement.NotIn(karpv1.LabelCapacityType, karpv1.CapacityTypeReserved))
	}
	return l.Requirements
}
