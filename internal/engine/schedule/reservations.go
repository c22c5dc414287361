package schedule

import (
	"cmp"
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// reservedFirst puts pods first that fit only into reservations, and of those the ones with the fewest reservations to
// choose from. Other pods can get any instance, and would leave them nothing.
func (r *run) reservedFirst(queue []*queuedPod) []*queuedPod {
	if r.slots.Len() == 0 {
		return queue
	}
	choice := make(map[*class]int, len(r.classes))
	for _, c := range r.classes {
		choice[c] = r.reservationChoices(c)
	}
	slices.SortStableFunc(queue, func(a, b *queuedPod) int { return cmp.Compare(choice[a.class], choice[b.class]) })
	slices.SortStableFunc(r.classes, func(a, b *class) int { return cmp.Compare(choice[a], choice[b]) })
	return queue
}

// reservationChoices is how many reservations the pods fit into, if they fit on no other new node; else math.MaxInt.
func (sv *solver) reservationChoices(c *class) int {
	var reservations resources.Bitset
	n := 0
	for _, l := range sv.candidateLists(c.Constraints) {
		for _, cand := range l.List() {
			switch {
			case !c.Requests().Fits(l.TypeOf(cand).Room()):
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
