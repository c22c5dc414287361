package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
)

func TestDoubling(t *testing.T) {
	d := backoff.Doubling{First: time.Minute, Max: 10 * time.Minute}
	for earlier, want := range map[int]time.Duration{
		0: 1, 1: 2, 2: 4, 3: 8, 4: 10, 5: 10, math.MaxInt: 10,
	} {
		if got := d.After(earlier); got != want*time.Minute {
			t.Errorf("after %d failures: %v, want %d minutes", earlier, got, want)
		}
	}
	if got := (backoff.Doubling{First: time.Hour, Max: time.Minute}).After(0); got != time.Minute {
		t.Errorf("a first pause above the longest: %v", got)
	}
}
