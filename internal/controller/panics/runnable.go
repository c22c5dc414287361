package panics

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// leastPause and mostPause bound the pause before a loop that panicked is started again.
	leastPause, mostPause = time.Second, 5 * time.Minute
	// steady is how long a loop has to run until a panic counts as its first again.
	steady = 10 * time.Minute
)

// Restarts starts loops again that panic.
type Restarts struct {
	// Count is by the name of the loop.
	Count *prometheus.CounterVec
	Log   *slog.Logger
	// Least is the first pause; 0 stands for the default.
	Least time.Duration
}

// Guard returns a loop that recovers from its panics: each is logged with its stack and counted, and the loop is started again
// after a pause that grows. A loop that returns is not started again.
func (r *Restarts) Guard(loop manager.Runnable) manager.Runnable {
	name := fmt.Sprintf("%T", loop)
	if r.Count != nil {
		r.Count.WithLabelValues(name) // an alert on the increase misses a counter that begins with 1
	}
	return &guarded{Runnable: loop, restarts: r, name: name}
}

type guarded struct {
	manager.Runnable
	restarts *Restarts
	name     string
}

// NeedLeaderElection is what the loop says; one that says nothing runs on the leader only, as the manager has it.
func (g *guarded) NeedLeaderElection() bool {
	if l, ok := g.Runnable.(manager.LeaderElectionRunnable); ok {
		return l.NeedLeaderElection()
	}
	return true
}

// Start runs the loop until it returns or ctx ends.
func (g *guarded) Start(ctx context.Context) error {
	least := g.restarts.Least
	if least == 0 {
		least = leastPause
	}
	for failures := 0; ; failures++ {
		var err error
		began := time.Now()
		caught := Catch(func() { err = g.Runnable.Start(ctx) })
		if caught == nil {
			return err
		}
		if time.Since(began) > steady {
			failures = 0
		}
		pause := Backoff(least, mostPause, failures)
		g.restarts.Count.WithLabelValues(g.name).Inc()
		g.restarts.Log.Error("a loop panicked and is started again; this is a defect of Dovetail, report it with the stack",
			"loop", g.name, "panic", fmt.Sprint(caught.Value), "pause", pause, "stack", string(caught.Stack))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
