// Package turns has passes over the whole cluster follow each other where they can.
//
// Each of them holds a snapshot, and what it derives from that: 60 MB with 6,500 nodes and 130,000 pods. Two at a time need twice as much,
// and each takes twice as long.
package turns

import (
	"context"
	"sync"
	"time"
)

// Turns are the passes that are in progress. The zero value has none. It is safe for concurrent use.
type Turns struct {
	mu sync.Mutex
	// taken counts how many passes are in progress; over is closed when none is any more, and nil while none is.
	taken int
	over  chan struct{}
}

// Take waits until no pass is in progress, for at most the time given and not after ctx is done, and begins one in any case. It lasts until
// end is called.
func (t *Turns) Take(ctx context.Context, atMost time.Duration) (end func()) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		over := t.beginAlone()
		if over == nil {
			return t.end
		}
		select {
		case <-over:
			continue
		case <-ctx.Done():
		case <-timer.C:
		}
		return t.Now()
	}
}

// Now begins a pass at once. It lasts until end is called.
func (t *Turns) Now() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begin()
	return t.end
}

// beginAlone begins a pass, unless one is in progress. Then it returns what to wait for.
func (t *Turns) beginAlone() (over <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	t.begin()
	return nil
}

// begin begins a pass. The lock must be held.
func (t *Turns) begin() {
	if t.over == nil {
		t.over = make(chan struct{})
	}
	t.taken++
}

func (t *Turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken--; t.taken == 0 {
		close(t.over)
		t.over = nil
	}
}
