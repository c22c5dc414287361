// Package doctorloop looks the cluster over when the controller starts and on a timer, as dovetail doctor does.
package doctorloop

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

const (
	// every is how often the cluster is looked over; first is how soon after the start, when node classes are resolved.
	every, first = 10 * time.Minute, 30 * time.Second
	// quiet is for how long the same finding is not logged again.
	quiet = time.Hour
)

// Finding is what a check found, as far as it matters here.
type Finding struct{ Check, Severity, Object, Seen, Remedy string }

// Loop makes the checks, on the leader.
type Loop struct {
	// Look makes all checks.
	Look    func(ctx context.Context) []Finding
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time

	said map[Finding]time.Time
}

// NeedLeaderElection makes sure that findings are counted once.
func (*Loop) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			l.pass(ctx)
			timer.Reset(every)
		}
	}
}

// pass looks once: the gauge tells how many findings there are, the log which.
func (l *Loop) pass(ctx context.Context) {
	found := l.Look(ctx)
	if ctx.Err() != nil {
		return
	}
	l.Metrics.DoctorFindings.Reset()
	now, said := l.Now(), map[Finding]time.Time{}
	for _, f := range found {
		l.Metrics.DoctorFindings.With(prometheus.Labels{"check": f.Check, "severity": f.Severity}).Inc()
		before, known := l.said[f]
		if known && now.Sub(before) < quiet {
			said[f] = before
			continue
		}
		said[f] = now
		l.Log.Warn("doctor: "+f.Seen, "check", f.Check, "severity", f.Severity, "object", f.Object, "remedy", f.Remedy)
	}
	l.said = said
}
