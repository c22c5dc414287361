package console

import (
	"context"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// Recorded is the event of a recording with other decisions than before, or with other steps of them.
type Recorded struct {
	// Recorded grows with each. It is not the number of decisions.
	Recorded uint64 `json:"recorded"`
}

// followInterval sets how often the recording is looked at while somebody looks at the page. That costs one call to the file system, and a
// read of the headers of its frames once it has been written.
const followInterval = time.Second

// followRecording has the streams report whenever the recording has other decisions, until the context is canceled. A recording that
// cannot be read now is read after it has been written again.
func (c *Console) followRecording(ctx context.Context) {
	if c.Written == nil || c.Sources.Decisions == nil {
		return
	}
	every := time.NewTicker(followInterval)
	defer every.Stop()
	var last time.Time
	for {
		if written, err := c.Written(); err == nil && !written.Equal(last) {
			last = written
			_, _ = c.recording(func(r *recorder.Recording) (any, error) {
				c.hub.decide(r.Decided())
				return nil, nil
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// decide has the streams report the number of the last decision or step.
func (h *hub) decide(last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last == h.decided {
		return
	}
	h.decided = last
	close(h.nextDecided)
	h.nextDecided = make(chan struct{})
}

// lastDecided is the number of the last decision or step, 0 if there is none, and a channel that is closed once there is another.
func (h *hub) lastDecided() (uint64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.decided, h.nextDecided
}

func (e eventWriter) recorded(last uint64) error {
	return e.event("recorded", fmt.Appendf(nil, `{"recorded":%d}`, last))
}
