package reservation_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const key = "example.com/reservation-id"

// newSlots are two reservations, of two slots and of one.
func newSlots(nodes ...snapshot.Node) (s *reservation.Slots, two, one int) {
	s = &reservation.Slots{}
	two, one = s.Add("cr-two", 2), s.Add("cr-one", 1)
	s.TakeInFlight(nodes, key)
	return s, two, one
}

// inFlight is a claim without an instance that may be launched into the reservations.
func inFlight(ids ...string) snapshot.Node {
	return snapshot.Node{Claim: "claim", Requirements: []karpv1.Requirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: ids},
	}}
}

func TestOfferingsOfOneReservationShareItsSlots(t *testing.T) {
	s := &reservation.Slots{}
	n := s.Add("cr", 3)
	if again := s.Add("cr", 1); again != n || s.Len() != 1 {
		t.Errorf("the second offering has number %d of %d, want the first one's, %d", again, s.Len(), n)
	}
	s.Add("cr", 5)
	s.TakeInFlight(nil, key)
	if s.Total(n) != 1 {
		t.Errorf("%d slots, want the least that an offering states, 1", s.Total(n))
	}
	if s.ID(n) != "cr" {
		t.Errorf("ID %q, want cr", s.ID(n))
	}
}

func TestAReservationHasNoFewerThanZeroSlots(t *testing.T) {
	s := &reservation.Slots{}
	n := s.Add("cr", -2)
	s.TakeInFlight([]snapshot.Node{inFlight("cr")}, key)
	if s.Total(n) != 0 || s.Available(n, reservation.None) {
		t.Errorf("%d slots, available: %t; want none", s.Total(n), s.Available(n, reservation.None))
	}
}

func TestClaimsInFlightTakeASlotInEachReservationThatTheyName(t *testing.T) {
	launched := inFlight("cr-two")
	launched.Launched = true
	excluded := inFlight("cr-two")
	excluded.Requirements[0].Operator = corev1.NodeSelectorOpNotIn
	s, two, one := newSlots(inFlight("cr-two", "cr-one", "cr-unknown"), launched, excluded)
	if s.Total(two) != 1 || s.Total(one) != 0 {
		t.Errorf("%d and %d slots left, want 1 and 0", s.Total(two), s.Total(one))
	}
}

func TestASlotIsAvailableToTheNodeThatHoldsIt(t *testing.T) {
	s, two, one := newSlots()
	s.Move(reservation.None, one)
	if s.Available(one, reservation.None) {
		t.Error("another node gets the only slot")
	}
	if !s.Available(one, one) || !s.Available(reservation.None, one) {
		t.Error("the node cannot keep its slot, or not leave the reservation")
	}
	s.Move(one, two)
	if !s.Available(one, reservation.None) {
		t.Error("a node that moved to another reservation did not return its slot")
	}
	s.Move(two, two)
	s.Take(two)
	if s.Available(two, reservation.None) {
		t.Error("a third node gets one of two slots")
	}
	s.Return(two)
	if !s.Available(two, reservation.None) {
		t.Error("a returned slot is not available")
	}
}

func TestUndoReturnsToTheMark(t *testing.T) {
	s, two, one := newSlots()
	first := s.Marked()
	s.Take(one)
	s.Mark()
	s.Take(two)
	s.Take(two)
	s.Undo()
	if s.Available(one, reservation.None) || !s.Available(two, reservation.None) {
		t.Error("Undo did not return to the mark")
	}
	s.Restore(first)
	s.Take(one)
	s.Undo()
	if !s.Available(one, reservation.None) {
		t.Error("Undo after Restore did not return to the restored state")
	}
	if s.Total(one) != 1 || s.Total(two) != 2 {
		t.Error("what plans can use changed with the plan")
	}
}

func TestAMarkedStateDoesNotChange(t *testing.T) {
	s, _, one := newSlots()
	old := s.Marked()
	s.Take(one)
	s.Mark()
	s.Restore(old)
	if !s.Available(one, reservation.None) {
		t.Error("the state changed with a later Mark")
	}
}

func TestACloneIsIndependent(t *testing.T) {
	s, _, one := newSlots()
	c := s.Clone()
	c.Take(one)
	if n := c.Add("cr-new", 1); n != 3 || c.ID(n) != "cr-new" {
		t.Errorf("the clone's new reservation is %d", n)
	}
	if s.Len() != 2 || !s.Available(one, reservation.None) {
		t.Error("a change of the clone shows in the original")
	}
}
