// Package reservation counts the free slots of EC2 capacity reservations while nodes are planned, so that no plan uses
// more instances than a reservation has.
package reservation

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// None is the number of no reservation, as for most nodes. Reservations have numbers from 1 on.
const None = 0

// Slots counts what is left of capacity reservations. A node that is to be launched into a reservation takes one of its
// slots, and returns it when it becomes something else. The zero value has no reservations.
//
// Invariant: a reservation never has fewer than 0 slots left. All methods cost O(1) unless they state otherwise.
type Slots struct {
	numbers map[string]int
	ids     []string // by number - 1, as are the following
	// left is the number of free slots, leftAtStart that at the last Mark.
	left, leftAtStart []int
	total             []int // what a plan can use: set by TakeInFlight
}

// Add counts an offering in a reservation and returns the reservation's number. A reservation has the least that any of
// its offerings states, whatever pool it is in.
func (s *Slots) Add(id string, remaining int) int {
	n, known := s.numbers[id]
	if !known {
		if s.numbers == nil {
			s.numbers = map[string]int{}
		}
		s.ids, s.left = append(s.ids, id), append(s.left, math.MaxInt)
		n = len(s.ids)
		s.numbers[id] = n
	}
	s.left[n-1] = max(0, min(s.left[n-1], remaining))
	return n
}

// TakeInFlight takes the slots of in-flight claims without an instance: each claim needs a slot in every reservation
// that it may be launched into, given by the label with this key. What is left is what a plan can use. It is called once,
// after the last Add.
//
// Cost: linear in the nodes and their requirements.
func (s *Slots) TakeInFlight(nodes []snapshot.Node, key string) {
	for i := range nodes {
		n := &nodes[i]
		if n.Claim == "" || n.Launched || key == "" {
			continue
		}
		for _, r := range n.Requirements {
			if r.Key == key && r.Operator == corev1.NodeSelectorOpIn {
				s.TakeNamed(r.Values)
			}
		}
	}
	s.total = slices.Clone(s.left)
	s.leftAtStart = slices.Clone(s.left)
}

// TakeNamed takes a slot in each of the reservations that is known and has one left.
func (s *Slots) TakeNamed(ids []string) {
	for _, id := range ids {
		if n, known := s.numbers[id]; known && s.left[n-1] > 0 {
			s.left[n-1]--
		}
	}
}

// Len is the number of reservations, and the greatest number of one.
func (s *Slots) Len() int { return len(s.ids) }

// ID is the reservation's ID in EC2.
func (s *Slots) ID(n int) string { return s.ids[n-1] }

// Total returns how many slots of the reservation a plan can use.
func (s *Slots) Total(n int) int { return s.total[n-1] }

// Available reports whether a node that has a slot in the reservation held has or could have one in reservation n.
func (s *Slots) Available(n, held int) bool { return n == None || n == held || s.left[n-1] > 0 }

// Take takes a slot. There must be one left.
func (s *Slots) Take(n int) { s.left[n-1]-- }

// Return returns a slot.
func (s *Slots) Return(n int) { s.left[n-1]++ }

// Move returns a slot of one reservation and takes one of another; either can be None.
func (s *Slots) Move(from, to int) {
	if from == to {
		return
	}
	if from != None {
		s.Return(from)
	}
	if to != None {
		s.Take(to)
	}
}

// Mark makes the slots that are left now the ones that Undo returns to.
func (s *Slots) Mark() { copy(s.leftAtStart, s.left) }

// Undo returns to the last Mark.
func (s *Slots) Undo() { copy(s.left, s.leftAtStart) }

// State describes what was left of each reservation at a Mark.
type State struct{ left []int }

// Marked is the state at the last Mark.
func (s *Slots) Marked() State { return State{slices.Clone(s.leftAtStart)} }

// Restore makes an earlier state the present one, and the one that Undo returns to.
func (s *Slots) Restore(old State) {
	copy(s.left, old.left)
	s.Mark()
}

// Clone is a copy with changes that do not show in s.
func (s *Slots) Clone() Slots {
	out := *s
	out.numbers, out.ids = maps.Clone(s.numbers), slices.Clone(s.ids)
	out.left, out.leftAtStart = slices.Clone(s.left), slices.Clone(s.leftAtStart)
	return out
}
