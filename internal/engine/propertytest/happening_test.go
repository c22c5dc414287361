package propertytest

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// TestWhatHappensTooRarely: a run with few worlds does not fail because of bad luck. What a generator no longer makes is found in the
// worlds of an ordinary test run, and in many.
func TestWhatHappensTooRarely(t *testing.T) {
	for _, c := range []struct {
		name          string
		found, worlds int
		share         float64
		rare          bool
	}{
		{"no world", 0, 0, 0.5, false},
		{"one world without it", 0, 1, 0.9, false},
		{"a few worlds without it", 0, 10, 0.5, false},
		{"a few worlds without what is in nearly all", 0, 10, 0.9, true},
		{"a test run with as many as usual", 16, 158, 0.1, false},
		{"a test run with half as many", 8, 158, 0.1, false},
		{"a test run without it", 0, 158, 0.06, true},
		{"a large run with nearly as many", 960, 10_000, 0.1, false},
		{"a large run with half as many", 500, 10_000, 0.1, true},
		{"a large run without it", 0, 10_000, 0.01, true},
		{"more than there should be", 9000, 10_000, 0.5, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if rare := isRare(c.found, c.worlds, c.share); rare != c.rare {
				t.Errorf("%v, want %v", rare, c.rare)
			}
		})
	}
}

// TestTheTallyNamesWhatAGeneratorDoesNotMake: a generator without pods makes none of what pods have.
func TestTheTallyNamesWhatAGeneratorDoesNotMake(t *testing.T) {
	some := Happening{"a pool", 0.9, func(s *snapshot.Snapshot, _ *schedule.Plan) bool { return len(s.Pools) > 0 }}
	none := Happening{"a pod", 0.3, func(s *snapshot.Snapshot, _ *schedule.Plan) bool { return len(s.Pods) > 0 }}
	seen := NewTally(some, none)
	for seed := range uint64(50) {
		s := seeded(seed).schedulerWorld()
		s.Pods = nil
		seen.Add(s, &schedule.Plan{})
	}
	rare := seen.Rare()
	if len(rare) != 1 || rare[0] != "a pod: in 0 of 50 worlds, not in 30 % of them" {
		t.Errorf("%q", rare)
	}
}
