package shadow

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// passInterval is the pause between passes. It is half of disruption's: a command must be seen before the acting controller
	// begins with it, 15 s after it could have found it.
	passInterval = 5 * time.Second
	// restFactor sets how many times the duration of a pass the loop rests: planning takes at most about a tenth of one core.
	restFactor = 10
	// saveInterval sets how often the report is written while nothing but the time changes.
	saveInterval = 10 * time.Second
	// saveTimeout is for the last report of a process that stops.
	saveTimeout = 5 * time.Second
)

// snapshots takes Snapshots of the cluster.
type snapshots interface {
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
}

// batches waits for pods that need nodes.
type batches interface {
	// Wait returns after the next batch; false when ctx is done.
	Wait(ctx context.Context) bool
}

// store keeps a Ledger.
type store interface {
	Load(ctx context.Context, l *Ledger) error
	Save(ctx context.Context, l *Ledger) error
}

// Loop runs passes, and publishes the report.
type Loop struct {
	State   snapshots
	Batch   batches
	Claims  client.Reader
	Store   store
	Ledger  *Ledger
	Refused *Refusals
	Metrics *Metrics
	Log     *slog.Logger
	Now     func() time.Time

	loaded bool
	saved  time.Time
}

// NeedLeaderElection is false: a shadow has no lease.
func (l *Loop) NeedLeaderElection() bool { return false }

// Start runs passes until ctx is done. The report of the process before continues.
func (l *Loop) Start(ctx context.Context) error {
	pods := make(chan struct{}, 1)
	go func() {
		for l.Batch.Wait(ctx) {
			select {
			case pods <- struct{}{}:
			default: // a pass is due already
			}
		}
	}()
	for {
		began := l.Now()
		if err := l.guardedPass(ctx); err != nil && ctx.Err() == nil {
			l.Log.Error("shadow", "error", err)
		}
		select {
		case <-ctx.Done():
			return l.saveLast(ctx)
		case <-pods:
		case <-time.After(max(passInterval, restFactor*l.Now().Sub(began))):
		}
	}
}

// saveLast saves what the last save lacks.
func (l *Loop) saveLast(ctx context.Context) error {
	if !l.loaded {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	return l.Store.Save(ctx, l.Ledger)
}

// guardedPass is a pass with panics as errors: a defect of the engine must not end the watch.
func (l *Loop) guardedPass(ctx context.Context) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("planning panicked, which is a bug in Dovetail: %v\n%s", caught, debug.Stack())
		}
	}()
	return l.pass(ctx)
}

func (l *Loop) pass(ctx context.Context) error {
	if !l.loaded {
		if err := l.Store.Load(ctx, l.Ledger); err != nil {
			return err
		}
		l.loaded = true
	}
	snap, err := l.State.Snapshot(ctx)
	if err != nil {
		return err
	}
	reasons, err := l.reasons(ctx)
	if err != nil {
		return err
	}
	l.Ledger.Pass(snap, reasons)
	l.Ledger.state.Report.RefusedWrites = l.Refused.Count()
	l.Metrics.set(l.Ledger.Report())
	if !l.Ledger.changed && l.Now().Sub(l.saved) < saveInterval {
		return nil
	}
	if err := l.Store.Save(ctx, l.Ledger); err != nil {
		return err
	}
	l.Ledger.changed, l.saved = false, l.Now()
	return nil
}

// reasons returns why the acting controller disrupts nodes, by the UID of the NodeClaim.
func (l *Loop) reasons(ctx context.Context) (map[types.UID]string, error) {
	var claims karpv1.NodeClaimList
	if err := l.Claims.List(ctx, &claims); err != nil {
		return nil, err
	}
	out := map[types.UID]string{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if c, ok := condition.Get(claim, karpv1.ConditionDisruptionReason); ok {
			out[claim.UID] = c.Reason
		}
	}
	return out, nil
}
