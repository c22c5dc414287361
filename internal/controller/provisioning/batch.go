package provisioning

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// fullBatch sets how many new pods are planned without waiting for more: the first of 30,000 pods get their nodes while the last still
// arrive. Those that arrive while the first are planned are planned together, so that it costs at most 1 % more (TestCostOfFullBatch).
const fullBatch = 1000

// Batch groups pods that arrive close together, so that they are planned together. It is a timing device
// only: a pass plans every pending pod, not the ones that triggered it.
type Batch struct {
	// Idle closes the window when no new pod arrives for that long; Max closes it in any case.
	Idle, Max time.Duration
	// Full closes the window when so many objects that were in none before have arrived in it.
	Full int

	signal, full chan struct{}
	mu           sync.Mutex
	seen         map[types.UID]bool
	arrived      int // of those in seen, how many were in no window before
	burst        burst
	// urgent is true if an object has triggered for a new reason, and urgentPass if one did in the last window.
	urgent, urgentPass bool
	// awaited are pods with an end that another pass is to report.
	awaited map[types.UID]bool
	// hurry is called when something triggers for a new reason; nil calls nothing.
	hurry func()
}

// NewBatch returns an empty Batch.
func NewBatch(idle, longest time.Duration) *Batch {
	return &Batch{
		Idle: idle, Max: longest, Full: fullBatch,
		signal: make(chan struct{}, 1), full: make(chan struct{}, 1), seen: map[types.UID]bool{},
	}
}

// Trigger opens a window or, if the object is new to the open one, keeps it open.
func (b *Batch) Trigger(uid types.UID) { b.trigger(uid, 0, true) }

// Retrigger is Trigger for an object that a pass has seen as it is. Another pass may find more for it, and can wait for a while.
func (b *Batch) Retrigger(uid types.UID) { b.trigger(uid, 0, false) }

// Urgent reports whether anything but Retrigger has opened the last window, or kept it open.
func (b *Batch) Urgent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.urgentPass
}

// await sets the pods with an end that another pass is to report.
func (b *Batch) await(pods map[types.UID]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited = pods
}

// ended opens a window if the pod is awaited.
func (b *Batch) ended(uid types.UID) {
	b.mu.Lock()
	awaited := b.awaited[uid]
	b.mu.Unlock()
	if awaited {
		b.Retrigger(uid)
	}
}

// untilUrgent returns a context that finishes as soon as something has triggered for a new reason since the last window. There is one at a
// time.
func (b *Batch) untilUrgent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hurry = cancel
	if b.urgent {
		cancel()
	}
	return ctx, cancel
}

// TriggerFirst is Trigger for an object that was in no window before. Others do not count for Full: pods that cannot be scheduled
// trigger again and again, and thousands of them would have passes follow each other without a pause.
func (b *Batch) TriggerFirst(uid types.UID) { b.trigger(uid, 1, true) }

func (b *Batch) trigger(uid types.UID, arrived int, urgent bool) {
	b.mu.Lock()
	if b.urgent = b.urgent || urgent; urgent && b.hurry != nil {
		b.hurry()
	}
	known := b.seen[uid]
	b.seen[uid] = true
	if !known {
		b.arrived += arrived
	}
	full := b.arrived >= b.Full
	if b.arrived >= burstSize {
		b.burst.begin()
	}
	b.mu.Unlock()
	if known {
		return
	}
	raise(b.signal)
	if full {
		raise(b.full)
	}
}

// raise sends a signal, unless one waits to be received.
func raise(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// Wait blocks until a window has opened and closed. It returns false if ctx is done first.
func (b *Batch) Wait(ctx context.Context) bool {
	b.planned()
	select {
	case <-b.signal:
	case <-ctx.Done():
		return false
	}
	longest := time.NewTimer(b.Max)
	defer longest.Stop()
	idle := time.NewTimer(b.Idle)
	defer idle.Stop()
	for open := true; open; {
		select {
		case <-b.signal:
			idle.Reset(b.Idle)
		case <-idle.C:
			open = false
		case <-longest.C:
			open = false
		case <-b.full:
			open = false
		case <-ctx.Done():
			return false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen)
	b.arrived = 0
	b.urgentPass, b.urgent = b.urgent, false
	select {
	case <-b.full: // of this window
	default:
	}
	return true
}

// planned stops a burst, unless the next one has begun to arrive while it was planned.
func (b *Batch) planned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.arrived < burstSize {
		b.burst.end()
	}
}
