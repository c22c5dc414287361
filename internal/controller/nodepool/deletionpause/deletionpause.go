// Package deletionpause shows on NodePools that the controller deletes nothing of them, and resumes deletions at the request of a person.
package deletionpause

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

const (
	// eventWindow is the dedupe window of the event about a pause.
	eventWindow = 15 * time.Minute
	// reasonExceeded, reasonInvalid and reasonLedger are the reasons of the condition.
	reasonExceeded, reasonInvalid, reasonLedger = "LimitExceeded", "InvalidAnnotation", "LedgerNotAvailable"
	// ledgerPatience is how long the ledger may not be readable or writable before the condition states so: one request that fails, as
	// while the API server restarts, needs nobody. ledgerRecheck is the time between two attempts.
	ledgerPatience, ledgerRecheck = 20 * time.Second, 10 * time.Second
)

// Metrics report paused NodePools.
type Metrics struct {
	// Paused by nodepool is 1 while nothing of the pool is deleted.
	Paused *prometheus.GaugeVec
	// Deletions by verb, kind and nodepool counts what was deleted.
	Deletions *prometheus.CounterVec
}

// NewMetrics declares the metrics in reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		Paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dovetail_blast_radius_exceeded",
			Help: "1 while the controller deletes no nodes with pods of the pool, because more would have been deleted than the blast radius allows.",
		}, []string{"nodepool"}),
		Deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dovetail_deletions_total",
			Help: "What the controller has deleted: NodeClaims, Nodes, pods (evicted or deleted) and instances, by kind of reason: planned, fault, " +
				"expired, interrupted or requested.",
		}, []string{"verb", "kind", "nodepool"}),
	}
	if err := reg.Register(m.Paused); err != nil {
		return nil, err
	}
	return m, reg.Register(m.Deletions)
}

// Count counts a deletion.
func (m *Metrics) Count(r destroy.Record) {
	m.Deletions.WithLabelValues(string(r.Verb), string(r.Kind), r.NodePool).Inc()
}

// budget is what limits deletions.
type budget interface {
	Paused(ctx context.Context, pool string) error
	Resume(ctx context.Context, pool *karpv1.NodePool) (resumed bool, err error)
	Ready(ctx context.Context) (since time.Time, err error)
	Forget(ctx context.Context, pool string) error
}

// Reconciler keeps the condition BlastRadiusExceeded of NodePools.
type Reconciler struct {
	Client  client.Client
	Budget  budget
	Events  *event.Recorder
	Metrics *Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Changed has an item when a pause has begun or is over.
	Changed <-chan ctrlevent.GenericEvent
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodepool.deletionpause").
		For(&karpv1.NodePool{}).
		WatchesRawSource(source.Channel(r.Changed, handler.EnqueueRequestsFromMapFunc(cluster.AllPools(mgr.GetClient())))).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile resumes deletions if the pool's annotation requests it, and shows whether they are paused.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
		r.Metrics.Paused.DeleteLabelValues(req.Name)
		return reconcile.Result{}, r.Budget.Forget(ctx, req.Name)
	}
	_, resuming := r.Budget.Resume(ctx, pool) // Ready repeats what it could not write
	since, ledger := r.Budget.Ready(ctx)
	if ledger != nil {
		if age := r.Now().Sub(since); age >= 0 && age < ledgerPatience {
			return reconcile.Result{RequeueAfter: ledgerPatience - age}, nil
		}
		return reconcile.Result{RequeueAfter: ledgerRecheck}, r.show(ctx, pool, reasonLedger, fmt.Errorf(
			"no node with pods is deleted, except by interruptions and people, while the ledger of deletions is not available: %w", ledger))
	}
	if resuming != nil {
		r.Log.Warn("resuming deletions", "NodePool", pool.Name, "error", resuming)
	}
	reason, why := reasonExceeded, r.Budget.Paused(ctx, pool.Name)
	if why != nil && !destroy.IsPaused(why) {
		return reconcile.Result{}, why
	}
	// The budget may not have seen yet how the annotation has changed just now.
	switch _, _, invalid := destroy.ShareOf(pool); {
	case invalid != nil:
		reason = reasonInvalid
		if why == nil {
			why = &destroy.Paused{Scope: pool.Name, Pause: destroy.Pause{Message: invalid.Error()}}
		}
	case destroy.IsUnreadable(why):
		why = nil
	}
	return reconcile.Result{}, r.show(ctx, pool, reason, why)
}

// show keeps condition, gauge and events. Why is nil while nothing is paused.
func (r *Reconciler) show(ctx context.Context, pool *karpv1.NodePool, reason string, why error) error {
	before := pool.DeepCopy()
	was := condition.IsTrue(pool, karpv1.ConditionBlastRadiusExceeded)
	if why != nil {
		condition.SetTrueWithReason(pool, karpv1.ConditionBlastRadiusExceeded, condition.Because(reason, why.Error()), r.Now())
	} else {
		condition.Clear(pool, karpv1.ConditionBlastRadiusExceeded, r.Now())
	}
	if _, err := patch.StatusFrom(ctx, r.Client, before, pool); err != nil {
		return err
	}
	paused := 0.0
	if why != nil {
		paused = 1
	}
	r.Metrics.Paused.WithLabelValues(pool.Name).Set(paused)
	switch {
	case why != nil:
		r.Events.WarnEvery(eventWindow, pool, karpv1.ConditionBlastRadiusExceeded, "%s", why)
		if !was {
			r.Log.Error("deletions are paused", "NodePool", pool.Name, "why", why.Error())
		}
	case was:
		r.Events.Normal(pool, "DeletionsResumed", "Nodes of NodePool %s may be deleted again", pool.Name)
		r.Log.Info("deletions resume", "NodePool", pool.Name)
	}
	return nil
}
