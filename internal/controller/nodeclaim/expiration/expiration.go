// Package expiration deletes NodeClaims that have reached the maximum age that their spec allows.
package expiration

import (
	"context"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// heldRecheck is the time between two looks at an expired claim that must stay.
const heldRecheck = time.Minute

// heldEventWindow is the dedupe window of the event on such a claim.
const heldEventWindow = 15 * time.Minute

// keeper knows which expired claims must stay for now, and why.
type keeper interface {
	KeepsExpired(ctx context.Context, claim *karpv1.NodeClaim) (why string, err error)
}

// Reconciler deletes NodeClaims older than spec.expireAfter. Disruption budgets do not delay it; the drain honors
// PodDisruptionBudgets. Only while new nodes of its pool fail a claim stays: its pods would get such a node. Of a pool that replaces its
// nodes before they expire (karpv1.AnnotationExpiration), so many go in a minute as Most allows, and only after the grace.
type Reconciler struct {
	Client client.Client
	Guard  *destroy.Guard
	// Most limits how many nodes of a pool with the annotation are deleted in a minute.
	Most disrupt.Forced
	// Keeper may be nil: then every expired claim goes.
	Keeper  keeper
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("nodeclaim.expiration").For(&karpv1.NodeClaim{}).
		Complete(destroy.Requeue(patch.RequeueOnConflict(r)))
}

// Reconcile deletes the claim if it has expired, or requeues it for the time when it will.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.SharedOwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	age := claim.Spec.ExpireAfter.Duration
	if claim.DeletionTimestamp != nil || age == nil {
		return reconcile.Result{}, nil
	}
	if wait := claim.CreationTimestamp.Add(*age).Sub(r.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if wait, err := r.graceful(ctx, claim); err != nil || wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if r.Keeper != nil {
		why, err := r.Keeper.KeepsExpired(ctx, claim)
		if err != nil {
			return reconcile.Result{}, err
		}
		if why != "" {
			r.Events.WarnEvery(heldEventWindow, claim, "DisruptionBlocked", "Expired, and stays: %s", why)
			return reconcile.Result{RequeueAfter: heldRecheck}, nil
		}
	}
	pods := cluster.Reschedulable(ctx, r.Client, claim.Status.NodeName)
	// The resource version keeps a claim that is already being deleted from being counted twice.
	if err := r.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Expired, Reason: "expired", Unchanged: true}); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.Log.Debug("deleting expired nodeclaim", "NodeClaim", claim.Name)
	r.Metrics.Disrupted(claim, "expired")
	r.Metrics.PodsDisrupted(claim, "expired", pods)
	return reconcile.Result{}, nil
}
