package provisioning

import (
	"context"
	"time"
)

// burstBatch is how many new pods in a window are a burst. A plan for fewer takes so little that nobody needs to wait for it.
const burstBatch = 500

// calm is what others wait for while many pods arrive and are planned. The zero value is calm.
type calm struct {
	// over is closed when the burst is over; nil while there is none.
	over chan struct{}
}

// begin begins a burst, unless there is one.
func (c *calm) begin() {
	if c.over == nil {
		c.over = make(chan struct{})
	}
}

// end ends the burst, if there is one.
func (c *calm) end() {
	if c.over != nil {
		close(c.over)
		c.over = nil
	}
}

// AwaitCalm waits while many pods arrive or are planned, for at most the time given. Other plans would compete with that of the pods for
// cores and memory, and would be of a cluster that changes meanwhile. It returns false if ctx ends first.
func (b *Batch) AwaitCalm(ctx context.Context, atMost time.Duration) bool {
	b.mu.Lock()
	over := b.calm.over
	b.mu.Unlock()
	if over == nil {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-over:
	case <-timer.C:
	}
	return true
}
