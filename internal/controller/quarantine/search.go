package quarantine

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Tests is how many plans a search makes at most. One culprit among n units takes about twice the binary logarithm of n; a
// plan of a large cluster takes about a second.
const Tests = 120

// Suspects are the units that a search has left out.
type Suspects struct {
	// Proven fail a plan that goes through without them, Unproven were not tried any more.
	Proven, Unproven Set
	// Found is false if plans fail whoever is left out: the cause is not a pod.
	Found bool
}

// All are both.
func (s *Suspects) All() Set {
	out := Set{}
	for _, set := range []Set{s.Proven, s.Unproven} {
		for u := range set {
			out[u] = true
		}
	}
	return out
}

// Search finds units without which a plan goes through, as few as it can: it adds them by halves to those that go through
// together. passes tries a plan without a set; that one without any fails is known. Blocks are added one after the other: of
// units that only fail together, that of the later block is left out. The search always ends, after so many tests at most.
func Search(blocks [][]Unit, tests int, passes func(out Set) bool) Suspects {
	s := search{in: Set{}, tests: tests, passes: passes, found: Suspects{Proven: Set{}, Unproven: Set{}}}
	for _, block := range blocks {
		s.all = append(s.all, block...)
	}
	for i, block := range blocks {
		s.admit(block, i == 0 && len(block) == len(s.all))
	}
	s.found.Found = s.passed || s.try(nil)
	return s.found
}

type search struct {
	all    []Unit
	in     Set
	tests  int
	passes func(out Set) bool
	// passed is true once a plan has gone through.
	passed bool
	found  Suspects
}

// try plans with what is admitted and more.
func (s *search) try(more []Unit) bool {
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

// admit lets in as many of the list as go through. failing is true if the whole list is known not to.
func (s *search) admit(list []Unit, failing bool) {
	switch {
	case len(list) == 0:
		return
	case !failing && s.tests <= 0:
		for _, u := range list {
			s.found.Unproven[u] = true
		}
		return
	case !failing && s.try(list):
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
	s.admit(list[:half], false)
	// Where the first half went in whole, it is the second that fails.
	s.admit(list[half:], len(s.found.Proven)+len(s.found.Unproven) == before)
}

// Cause finds the units of a snapshot on account of which planning fails. Pods that wait are suspected first: all others have
// been planned before. Where most of them would have to be left out, something that weighs on all of them is looked for.
// Units of before, which were left out once, come last.
func Cause(s *snapshot.Snapshot, before Set, census *Census, passes func(out Set) bool) Suspects {
	waiting, others := unitsOf(s, census)
	trusted, suspected := apart(waiting, before)
	first := Search(append([][]Unit{trusted}, suspected...), Tests, passes)
	if first.Found && 2*(len(first.Proven)+len(first.Unproven)) <= len(waiting) || len(others) == 0 {
		return first
	}
	trustedOthers, suspectedOthers := apart(others, before)
	blocks := append([][]Unit{trusted}, suspected...)
	blocks = append(append(blocks, trustedOthers), suspectedOthers...)
	second := Search(blocks, Tests, passes)
	if !first.Found || second.Found && len(second.Proven)+len(second.Unproven) < len(first.Proven)+len(first.Unproven) {
		return second
	}
	return first
}

// apart splits a list into those that were never left out and the others, each of which is tried alone.
func apart(list []Unit, before Set) (trusted []Unit, suspected [][]Unit) {
	for _, u := range list {
		if before[u] {
			suspected = append(suspected, []Unit{u})
		} else {
			trusted = append(trusted, u)
		}
	}
	return trusted, suspected
}

// unitsOf lists the units of a snapshot in its order: those of pods that wait, and those of DaemonSets and of pods on nodes.
func unitsOf(s *snapshot.Snapshot, census *Census) (waiting, others []Unit) {
	seen := Set{}
	add := func(to *[]Unit, u Unit) {
		if !seen[u] {
			seen[u] = true
			*to = append(*to, u)
		}
	}
	for _, list := range [][]*corev1.Pod{s.Pods, s.Arriving, s.Virtual} {
		for _, pod := range list {
			add(&waiting, census.Unit(pod))
		}
	}
	for i := range s.DaemonSets {
		if d := &s.DaemonSets[i]; d.Pod != nil {
			add(&others, census.Daemons(d))
		}
	}
	for i := range s.Nodes {
		for _, pod := range s.Nodes[i].Pods {
			add(&others, census.Unit(pod))
		}
	}
	return waiting, others
}
