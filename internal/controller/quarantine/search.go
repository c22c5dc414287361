package quarantine

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// MaxPlans limits how many plans a search computes at most. One culprit among n units takes about 2·log2(n) plans, so this
// suffices for several culprits; a plan of a large cluster takes about a second.
const MaxPlans = 120

// Suspects is the result of a search: the units to leave out.
type Suspects struct {
	// Proven units fail a plan that passes without them. Unproven units were not tried before the search finished.
	Proven, Unproven Set
	// Found is false if plans fail whatever is left out: then the cause is not a pod.
	Found bool
}

// All returns the proven and the unproven units.
func (s *Suspects) All() Set {
	out := Set{}
	for _, set := range []Set{s.Proven, s.Unproven} {
		for u := range set {
			out[u] = true
		}
	}
	return out
}

// Search finds a small set of units without which a plan passes. It is a bisection in the manner of delta debugging
// (Zeller and Hildebrandt, 2002): it adds blocks of units to the set that passes, and splits a block that fails in
// halves. The invariant is that the plan with all added units passes. k culprits among n units cost O(k log n) plans,
// limited to tests.
//
// passes computes a plan without the units of out; the plan with all units is known to fail. Blocks are added in order:
// of units that fail only together, the one in the later block is left out.
func Search(blocks [][]Unit, tests int, passes func(out Set) bool) Suspects {
	s := search{in: Set{}, tests: tests, passes: passes, found: Suspects{Proven: Set{}, Unproven: Set{}}}
	for _, block := range blocks {
		s.all = append(s.all, block...)
	}
	for i, block := range blocks {
		s.addPassing(block, i == 0 && len(block) == len(s.all))
	}
	s.found.Found = s.passed || s.plan(nil)
	return s.found
}

type search struct {
	all    []Unit
	in     Set
	tests  int
	passes func(out Set) bool
	// passed is true once a plan has passed.
	passed bool
	found  Suspects
}

// plan reports whether the plan with the added units and more passes.
func (s *search) plan(more []Unit) bool {
	if s.tests <= 0 {
		return false
	}
	s.tests--
	out := make(Set, len(s.all))
	for _, u := range s.all {
		if !s.in[u] {
			out[u] = true
		}
	}
	for _, u := range more {
		delete(out, u)
	}
	return s.passes(out)
}

// addPassing adds as many units of the list as pass. failing is true if the whole list is known to fail.
func (s *search) addPassing(list []Unit, failing bool) {
	switch {
	case len(list) == 0:
		return
	case !failing && s.tests <= 0:
		for _, u := range list {
			s.found.Unproven[u] = true
		}
		return
	case !failing && s.plan(list):
		s.passed = true
		for _, u := range list {
			s.in[u] = true
		}
		return
	case len(list) == 1:
		s.found.Proven[list[0]] = true
		return
	}
	half, before := len(list)/2, len(s.found.Proven)+len(s.found.Unproven)
	s.addPassing(list[:half], false)
	// If the first half passed as a whole, the second is known to fail.
	s.addPassing(list[half:], len(s.found.Proven)+len(s.found.Unproven) == before)
}

// FindCause finds the units of a snapshot that make planning fail. It suspects pending pods first, since all others
// have been planned before. If most of them would have to be left out, it searches among DaemonSets and running pods
// for a cause that affects all of them. Units of before, which have been quarantined before, come last.
func FindCause(s *snapshot.Snapshot, before Set, unitIndex *Units, passes func(out Set) bool) Suspects {
	waiting, others := unitsOfSnapshot(s, unitIndex)
	trusted, suspected := splitSuspected(waiting, before)
	first := Search(append([][]Unit{trusted}, suspected...), MaxPlans, passes)
	if first.Found && 2*(len(first.Proven)+len(first.Unproven)) <= len(waiting) || len(others) == 0 {
		return first
	}
	trustedOthers, suspectedOthers := splitSuspected(others, before)
	blocks := append([][]Unit{trusted}, suspected...)
	blocks = append(append(blocks, trustedOthers), suspectedOthers...)
	second := Search(blocks, MaxPlans, passes)
	if !first.Found || second.Found && len(second.Proven)+len(second.Unproven) < len(first.Proven)+len(first.Unproven) {
		return second
	}
	return first
}

// splitSuspected splits a list into units that were never quarantined and the others, each a block of its own.
func splitSuspected(list []Unit, before Set) (trusted []Unit, suspected [][]Unit) {
	for _, u := range list {
		if before[u] {
			suspected = append(suspected, []Unit{u})
		} else {
			trusted = append(trusted, u)
		}
	}
	return trusted, suspected
}

// unitsOfSnapshot lists the units of a snapshot in its order: those of pending pods, and those of DaemonSets and
// running pods.
func unitsOfSnapshot(s *snapshot.Snapshot, unitIndex *Units) (waiting, others []Unit) {
	seen := Set{}
	add := func(to *[]Unit, u Unit) {
		if !seen[u] {
			seen[u] = true
			*to = append(*to, u)
		}
	}
	for _, list := range [][]*corev1.Pod{s.Pods, s.Arriving, s.Virtual} {
		for _, pod := range list {
			add(&waiting, unitIndex.Unit(pod))
		}
	}
	for i := range s.DaemonSets {
		if d := &s.DaemonSets[i]; d.Pod != nil {
			add(&others, unitIndex.DaemonSetUnit(d))
		}
	}
	for i := range s.Nodes {
		for _, pod := range s.Nodes[i].Pods {
			add(&others, unitIndex.Unit(pod))
		}
	}
	return waiting, others
}
