// Package clusterstate tells whether what is known of the cluster is all there is. While it is not, nothing is planned.
package clusterstate

import (
	"context"
	"log/slog"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

const (
	// every is how often is looked.
	every = 5 * time.Second
	// quiet is for how long nobody is told, and again how often it is said then.
	quiet, again = 30 * time.Second, 10 * time.Second
)

// state is what is watched.
type state interface {
	// Primed tells whether the state knows all that there is.
	Primed() bool
	// NodeCount is how many nodes the state knows.
	NodeCount(ctx context.Context) (int, error)
}

// Watch measures the cluster state.
type Watch struct {
	State   state
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time

	// since is when the state was first found to lack something, said when that was last logged.
	since, said time.Time
}

// NeedLeaderElection makes sure that only the process that plans is watched.
func (w *Watch) NeedLeaderElection() bool { return true }

// Start watches until ctx ends.
func (w *Watch) Start(ctx context.Context) error {
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (w *Watch) look(ctx context.Context) {
	if n, err := w.State.NodeCount(ctx); err == nil {
		w.Metrics.StateNodes.Set(float64(n))
	}
	if w.State.Primed() {
		w.since, w.said = time.Time{}, time.Time{}
		w.Metrics.StateSynced.Set(1)
		w.Metrics.StateUnsynced.Set(0)
		return
	}
	now := w.Now()
	if w.since.IsZero() {
		w.since = now
	}
	unsynced := now.Sub(w.since)
	w.Metrics.StateSynced.Set(0)
	w.Metrics.StateUnsynced.Set(unsynced.Seconds())
	if unsynced > quiet && now.Sub(w.said) >= again {
		w.said = now
		w.Log.Error("cluster state is not synced: nothing is planned until the API server can be read", "duration", unsynced)
	}
}
