package join

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// samples sets how many of the last joins of a class count: enough to include slow ones, few enough to forget an AMI
	// that is no longer in use.
	samples = 20
	// minGracePeriod and maxGracePeriod bound the learned value: a shorter one would report nodes at random, a longer
	// one would report nothing in time.
	minGracePeriod, maxGracePeriod = 30 * time.Second, 10 * time.Minute
)

// Times learns how long instances of a node class take to join. It is safe for concurrent use.
type Times struct {
	initial time.Duration

	mu        sync.Mutex
	durations map[string][]time.Duration
	// observed are the claims that were learned from.
	observed map[types.UID]bool
}

// NewTimes returns Times with the initial grace period, for classes without a sample.
func NewTimes(initial time.Duration) *Times {
	return &Times{initial: initial, durations: map[string][]time.Duration{}, observed: map[types.UID]bool{}}
}

// Observe adds how long a claim of the class took to join. It counts each claim once.
func (t *Times) Observe(class string, claim types.UID, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.observed[claim] {
		return
	}
	t.observed[claim] = true
	list := append(t.durations[class], took)
	t.durations[class] = list[max(0, len(list)-samples):]
}

// Forget frees the state of a claim that is gone.
func (t *Times) Forget(claim types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.observed, claim)
}

// GracePeriod returns the time after which an instance of the class that has not joined is late: twice the longest of
// the last samples, within bounds.
func (t *Times) GracePeriod(class string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.durations[class]
	if len(list) == 0 {
		return t.initial
	}
	return min(max(2*slices.Max(list), minGracePeriod), maxGracePeriod)
}
