package panics

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
)

const (
	// minRestartBackoff and maxRestartBackoff bound the backoff before a loop that panicked is restarted. They are
	// those of the kubelet for containers, but for a shorter start: the process' state is intact.
	minRestartBackoff, maxRestartBackoff = time.Second, 5 * time.Minute
	// stableRunTime sets how long a loop must run for the backoff to start over, as for the kubelet.
	stableRunTime = 10 * time.Minute
)

// Restarter restarts loops that panic.
type Restarter struct {
	// Count is by the name of the loop.
	Count *prometheus.CounterVec
	Log   *slog.Logger
	// FirstBackoff is the first backoff; 0 means the default.
	FirstBackoff time.Duration
}

// Guard returns a loop that recovers from its panics: it logs each with its stack, counts it, and restarts the loop
// with exponential backoff. A loop that returns is not restarted.
func (r *Restarter) Guard(loop manager.Runnable) manager.Runnable {
	name := fmt.Sprintf("%T", loop)
	if r.Count != nil {
		r.Count.WithLabelValues(name) // an alert on the increase misses a counter that begins with 1
	}
	return &guarded{Runnable: loop, restarts: r, name: name}
}

type guarded struct {
	manager.Runnable
	restarts *Restarter
	name     string
}

// NeedLeaderElection is that of the loop. A loop without the method runs on the leader only, the manager's default.
func (g *guarded) NeedLeaderElection() bool {
	if l, ok := g.Runnable.(manager.LeaderElectionRunnable); ok {
		return l.NeedLeaderElection()
	}
	return true
}

// Start runs the loop until it returns or ctx is done.
func (g *guarded) Start(ctx context.Context) error {
	least := g.restarts.FirstBackoff
	if least == 0 {
		least = minRestartBackoff
	}
	for failures := 0; ; failures++ {
		var err error
		began := time.Now()
		caught := Catch(func() { err = g.Runnable.Start(ctx) })
		if caught == nil {
			return err
		}
		if time.Since(began) > stableRunTime {
			failures = 0
		}
		pause := backoff.Doubling{First: least, Max: maxRestartBackoff}.After(failures)
		g.restarts.Count.WithLabelValues(g.name).Inc()
		g.restarts.Log.Error("a loop panicked and is restarted; this is a defect of Dovetail, report it with the stack",
			"loop", g.name, "panic", fmt.Sprint(caught.Value), "pause", pause, "stack", string(caught.Stack))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
