package join

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// remembered is how many of the last joins of a class are learnt from.
	remembered = 20
	// soonest and latest bound what is learnt: below, chance would decide; above, nobody would wait.
	soonest, latest = 30 * time.Second, 10 * time.Minute
)

// Times learns how long instances of a node class usually take to join. It is safe for concurrent use.
type Times struct {
	unlearnt time.Duration

	mu    sync.Mutex
	taken map[string][]time.Duration
	// seen are the claims that were learnt from.
	seen map[types.UID]bool
}

// NewTimes returns Times that take unlearnt as usual for a class of which nothing is known.
func NewTimes(unlearnt time.Duration) *Times {
	return &Times{unlearnt: unlearnt, taken: map[string][]time.Duration{}, seen: map[types.UID]bool{}}
}

// Learn adds how long a claim of the class took. Telling it again changes nothing.
func (t *Times) Learn(class string, claim types.UID, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[claim] {
		return
	}
	t.seen[claim] = true
	list := append(t.taken[class], took)
	t.taken[class] = list[max(0, len(list)-remembered):]
}

// Forget frees what is kept of a claim that is gone.
func (t *Times) Forget(claim types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, claim)
}

// Usual is the time after which an instance of the class that has not joined is late: twice what the slowest of the
// last ones took, within bounds.
func (t *Times) Usual(class string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.taken[class]
	if len(list) == 0 {
		return t.unlearnt
	}
	return min(max(2*slices.Max(list), soonest), latest)
}
