package turns

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		start := time.Now()
		take := func(ctx context.Context, atMost, want time.Duration) (end func()) {
			t.Helper()
			end = turns.Take(ctx, atMost)
			if at := time.Since(start); at != want {
				t.Errorf("began after %v, want %v", at, want)
			}
			return end
		}
		first := take(t.Context(), time.Minute, 0)
		// Who cannot wait does not, and counts for those who can.
		urgent := turns.Now()
		go func() {
			time.Sleep(2 * time.Second)
			first()
			time.Sleep(2 * time.Second)
			urgent()
		}()
		second := take(t.Context(), time.Minute, 4*time.Second)
		// Nobody waits for longer than he wants to.
		third := take(t.Context(), 3*time.Second, 7*time.Second)
		second()
		third()
		// All are over: the next one begins at once, and who waited when the process finishes goes on.
		last := take(t.Context(), time.Minute, 7*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		take(ctx, time.Minute, 8*time.Second)()
		last()
	})
}

// Of many that wait for each other, one is in progress at a time, and each has its turn.
func TestManyTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		inProgress, began := 0, 0
		for range 20 {
			go func() {
				defer turns.Take(t.Context(), time.Hour)()
				began++ // one at a time, so that they need no lock
				if inProgress++; inProgress != 1 {
					t.Errorf("%d are in progress", inProgress)
				}
				time.Sleep(time.Second)
				inProgress--
			}()
		}
		time.Sleep(time.Minute)
		if began != 20 {
			t.Errorf("%d have begun, want 20", began)
		}
	})
}
