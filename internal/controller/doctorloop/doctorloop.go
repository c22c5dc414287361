// Package doctorloop runs the checks of dovetail doctor in the controller, shortly after its start and periodically.
package doctorloop

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
)

const (
	// interval is the pause between two runs. initialDelay is the pause before the first: by then node classes are
	// resolved.
	interval, initialDelay = 10 * time.Minute, 30 * time.Second
	// longestBurst limits how long the checks wait while pods get nodes: they take memory and CPU time then needed elsewhere.
	longestBurst = 3 * time.Minute
	// longestTurn limits how long they wait for passes over the cluster.
	longestTurn = time.Minute
	// logDedupeWindow is for how long the same finding is not logged again.
	logDedupeWindow = time.Hour
)

// Finding is a finding of a check.
type Finding struct{ Check, Severity, Object, Seen, Remedy string }

// launches are the passes that launch nodes for pods.
type launches interface {
	// AwaitBurstEnd waits until no burst of pods is planned, for at most the time given. It returns false if ctx is done first.
	AwaitBurstEnd(ctx context.Context, atMost time.Duration) bool
}

// Loop runs the checks, on the leader.
type Loop struct {
	// Check runs all checks.
	Check   func(ctx context.Context) []Finding
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Provisioning has the checks wait while many pods arrive and get nodes.
	Provisioning launches
	// Turns are the passes over the cluster that are in progress.
	Turns *turns.Turns

	logged map[Finding]time.Time
}

// NeedLeaderElection makes sure that findings are counted once.
func (*Loop) NeedLeaderElection() bool { return true }

// Start runs the checks periodically until ctx is done.
func (l *Loop) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(initialDelay):
		wait.UntilWithContext(ctx, l.pass, interval)
	}
	return nil
}

// checkInTurn runs the checks when no pass over the cluster is in progress.
func (l *Loop) checkInTurn(ctx context.Context) []Finding {
	defer l.Turns.Take(ctx, longestTurn)()
	return l.Check(ctx)
}

// pass runs the checks once. The gauge has the number of findings, the log their details.
func (l *Loop) pass(ctx context.Context) {
	if !l.Provisioning.AwaitBurstEnd(ctx, longestBurst) {
		return
	}
	found := l.checkInTurn(ctx)
	if ctx.Err() != nil {
		return
	}
	l.Metrics.DoctorFindings.Reset()
	now, logged := l.Now(), map[Finding]time.Time{}
	for _, f := range found {
		l.Metrics.DoctorFindings.With(prometheus.Labels{"check": f.Check, "severity": f.Severity}).Inc()
		before, known := l.logged[f]
		if known && now.Sub(before) < logDedupeWindow {
			logged[f] = before
			continue
		}
		logged[f] = now
		l.Log.Warn("doctor: "+f.Seen, "check", f.Check, "severity", f.Severity, "object", f.Object, "remedy", f.Remedy)
	}
	l.logged = logged
}
