package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWaves(t *testing.T) {
	for _, tt := range []struct {
		name            string
		canaries, nodes int
		count           Count
		room, wave, of  int
	}{
		{"the first", 1, 20, Count{}, 1, 1, 5},
		{"one per zone", 3, 20, Count{}, 3, 1, 3},
		{"a canary soaks", 1, 20, Count{Soaking: 1}, 0, 1, 5},
		{"a canary was started", 1, 20, Count{Unseen: 1}, 0, 1, 5},
		{"a canary has failed", 1, 20, Count{Failed: 1}, 0, 1, 5},
		{"the canary has survived: two more", 1, 20, Count{Survived: 1}, 2, 2, 5},
		{"one of two soaks", 1, 20, Count{Survived: 2, Soaking: 1}, 0, 2, 5},
		{"four", 1, 20, Count{Survived: 3}, 4, 3, 5},
		{"one of four has failed", 1, 20, Count{Survived: 6, Failed: 1}, 0, 3, 5},
		{"eight", 1, 20, Count{Survived: 7}, 8, 4, 5},
		{"two of three canaries have survived", 3, 20, Count{Survived: 2, Soaking: 1}, 0, 1, 3},
		{"six after three", 3, 20, Count{Survived: 3}, 6, 2, 3},
		{"a large fleet", 3, 5000, Count{Survived: 3 * (1<<10 - 1)}, 3 << 10, 11, 11},
		{"no number is too large", 100, 1 << 30, Count{Survived: 1 << 40}, 1, 0, 0},
	} {
		s := State{Canaries: tt.canaries, Nodes: tt.nodes}
		room := s.Room(tt.count)
		s.Survived = tt.count.Survived
		w := s.Wave()
		if tt.wave == 0 {
			if room < 0 || w.Number < 1 || w.Number > w.Of {
				t.Errorf("%s: room for %d, %+v", tt.name, room, w)
			}
			continue
		}
		if room != tt.room || w.Number != tt.wave || w.Of != tt.of {
			t.Errorf("%s: room for %d in wave %d of %d, want %d in %d of %d", tt.name, room, w.Number, w.Of, tt.room, tt.wave, tt.of)
		}
	}
}

func TestNext(t *testing.T) {
	fleet := Fleet{Images: []string{"ami-b", "ami-a"}, OldZones: strings.Fields("a b b c"), PerZone: 2, Soak: time.Minute}
	first := Next(nil, fleet, 0, now)
	if first.Canaries != 6 || first.Nodes != 4 || first.Started.Time != now || !slices.Equal(first.Images, []string{"ami-a", "ami-b"}) {
		t.Fatalf("begins with %+v", first)
	}
	fleet.OldZones = fleet.OldZones[:2]
	second := Next(first, fleet, 2, now.Add(time.Hour))
	if second.Survived != 2 || second.Canaries != 6 || second.Nodes != 4 || second.Started != first.Started || first.Survived != 0 {
		t.Errorf("goes on with %+v after %+v", second, first)
	}
	if third := Next(second, fleet, 1, now); third.Survived != 2 {
		t.Errorf("a node that has survived and is gone no longer counts: %+v", third)
	}
	other := fleet
	other.Images = []string{"ami-c"}
	if again := Next(second, other, 0, now.Add(time.Hour)); again.Survived != 0 || again.Started == second.Started || again.Canaries != 4 {
		t.Errorf("other images go on with %+v", again)
	}
	if done := Next(second, Fleet{}, 4, now); done != nil {
		t.Errorf("is not over: %+v", done)
	}
}
