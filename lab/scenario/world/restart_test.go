package world

import (
	"testing"
	"time"
)

func TestAControllerThatKeepsEndingIsStartedLessAndLessOften(t *testing.T) {
	var pause time.Duration
	var got []time.Duration
	for range 7 {
		pause = nextBackoff(pause, time.Second)
		got = append(got, pause)
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if got[i] != want*time.Second {
			t.Errorf("start %d waits %v, want %v", i+1, got[i], want*time.Second)
		}
	}
	if pause := nextBackoff(pause, backoffResetAfter); pause != 0 {
		t.Errorf("a controller that lived for %v is started again after %v, want at once", backoffResetAfter, pause)
	}
}
