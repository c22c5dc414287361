package provisioning

import (
	"context"
	"time"
)

// burstSize sets how many new pods in a window are a burst. A plan for fewer takes so little that nobody needs to wait for it.
const burstSize = 500

// burst is whether many pods arrive or are planned. The zero value is none.
type burst struct {
	// over is closed when the burst is over; nil while there is none.
	over chan struct{}
	// notify is called when a burst begins or has finished; nil reports nobody.
	notify func(begins bool)
}

// begin begins a burst, unless there is one.
func (u *burst) begin() {
	if u.over == nil {
		u.over = make(chan struct{})
		u.tell(true)
	}
}

// end stops the burst, if there is one.
func (u *burst) end() {
	if u.over != nil {
		close(u.over)
		u.over = nil
		u.tell(false)
	}
}

func (u *burst) tell(begins bool) {
	if u.notify != nil {
		u.notify(begins)
	}
}

// OnBurst has f called whenever a burst begins and when it has finished. f must return at once. It is called before the first trigger.
func (b *Batch) OnBurst(f func(begins bool)) { b.burst.notify = f }

// InBurst reports whether many pods arrive or are planned.
func (b *Batch) InBurst() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.burst.over != nil
}

// AwaitBurstEnd waits while many pods arrive or are planned, for at most the time given. Other plans would compete with that of the pods
// for cores and memory, and would be of a cluster that changes meanwhile. It returns false if ctx is done first.
func (b *Batch) AwaitBurstEnd(ctx context.Context, atMost time.Duration) bool {
	b.mu.Lock()
	over := b.burst.over
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
