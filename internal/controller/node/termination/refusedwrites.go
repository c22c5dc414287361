package termination

import (
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
)

// refusedWrites remembers that the API server refuses writes for lack of a right: of one object as of all. The next one waits, twice as
// long each time. The zero value remembers nothing. Several goroutines may use it at once.
type refusedWrites struct {
	mu      sync.Mutex
	inARow  int
	waitFor time.Time
}

// refusedPause is the wait after a refusal. The longest is how late a right that was granted meanwhile is noticed.
var refusedPause = backoff.Doubling{First: 10 * time.Second, Max: 10 * time.Minute}

// mayTry reports whether the next write is due.
func (w *refusedWrites) mayTry(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !now.Before(w.waitFor)
}

// note records that a write was refused, or not. It returns whether it is the first refusal since a write that was not.
func (w *refusedWrites) note(refused bool, now time.Time) (first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !refused {
		w.inARow, w.waitFor = 0, time.Time{}
		return false
	}
	w.waitFor = now.Add(refusedPause.After(w.inARow))
	w.inARow++
	return w.inARow == 1
}
