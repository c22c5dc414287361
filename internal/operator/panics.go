package operator

import (
	"context"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// guardedManager recovers panics of every loop that is added to it. Controllers do so by themselves: see RecoverPanic.
type guardedManager struct {
	manager.Manager
	restarts *panics.Restarter
}

// Add adds a loop or a controller.
func (m *guardedManager) Add(r manager.Runnable) error {
	if _, controller := r.(reconcile.Reconciler); controller {
		return m.Manager.Add(r)
	}
	return m.Manager.Add(m.restarts.Guard(r))
}

// holding is the manager for loops that begin later.
func (m *guardedManager) holding(hold func(manager.Runnable) manager.Runnable) *guardedManager {
	return &guardedManager{Manager: holdingManager{m.Manager, hold}, restarts: m.restarts}
}

// surviveWatches makes client-go log and skip a notification of a watch with a handler that panics, instead of exiting the process.
// Panics of reconcilers are counted here, too.
func surviveWatches(count *prometheus.CounterVec) {
	const name = "watches and reconcilers"
	count.WithLabelValues(name)
	utilruntime.ReallyCrash = false
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(context.Context, any) { count.WithLabelValues(name).Inc() })
}

// panicReporter records plans that panic, and writes a snapshot of the cluster if a directory is set.
func (a *assembly) panicReporter() *panics.Reporter {
	r := &panics.Reporter{Count: a.metrics.EnginePanics, Log: a.log}
	if a.settings.PanicSnapshotDir != "" {
		r.Snapshots = &panics.Snapshots{Dir: a.settings.PanicSnapshotDir, Now: time.Now, Write: func(ctx context.Context, w io.Writer) error {
			return manifest.Dump(ctx, a.mgr.GetAPIReader(), time.Now(), w)
		}}
	}
	return r
}
