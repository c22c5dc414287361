package provisioning

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Batch groups pods that arrive close together, so that they are planned together. It is a timing device
// only: a pass plans every pending pod, not the ones that triggered it.
type Batch struct {
	// Idle closes the window when no new pod arrives for that long; Max closes it in any case.
	Idle, Max time.Duration

	signal chan struct{}
	mu     sync.Mutex
	seen   map[types.UID]bool
}

// NewBatch returns an empty Batch.
func NewBatch(idle, longest time.Duration) *Batch {
	return &Batch{Idle: idle, Max: longest, signal: make(chan struct{}, 1), seen: map[types.UID]bool{}}
}

// Trigger opens a window or, if the object is new to the open one, keeps it open.
func (b *Batch) Trigger(uid types.UID) {
	b.mu.Lock()
	known := b.seen[uid]
	b.seen[uid] = true
	b.mu.Unlock()
	if known {
		return
	}
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// Wait blocks until a window has opened and closed. It returns false if ctx is done first.
func (b *Batch) Wait(ctx context.Context) bool {
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
		case <-ctx.Done():
			return false
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen)
	return true
}
