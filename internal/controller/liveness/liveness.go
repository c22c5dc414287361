// Package liveness ends NodeClaims that do not become nodes in time.
package liveness

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/conflict"
	"github.com/dovetail-k8s/dovetail/internal/controller/metric"
	"github.com/dovetail-k8s/dovetail/internal/controller/wake"
)

// How long a claim may take, counted from the condition's last transition, which is its creation.
const (
	LaunchTimeout       = 5 * time.Minute
	RegistrationTimeout = 15 * time.Minute
)

// health counts the claims of a pool that came to nothing.
type health interface {
	Failed(ctx context.Context, claim *karpv1.NodeClaim) error
}

// Reconciler deletes NodeClaims that are late.
type Reconciler struct {
	Client client.Client
	Health health
	// LaunchTimeout is how long a launch may take.
	LaunchTimeout time.Duration
	Metrics       *metric.Metrics
	Log           *slog.Logger
	Now           func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("nodeclaim.liveness").For(&karpv1.NodeClaim{}).WithOptions(wake.Options(1, time.Second, time.Minute)).Complete(conflict.Retry(r))
}

// Reconcile deletes the claim if it is late, or comes back when it would be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	if claim.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	d, ok := next(claim, r.LaunchTimeout)
	if !ok {
		return reconcile.Result{}, nil
	}
	if wait := d.at.Sub(r.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.Log.Info("terminating due to timeout", "NodeClaim", claim.Name, "timeout", d.timeout, "reason", d.reason)
	if err := r.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.Metrics.Disrupted(claim, d.reason)
	return reconcile.Result{}, r.Health.Failed(ctx, claim)
}

// deadline is when a claim counts as late, and for what.
type deadline struct {
	at      time.Time
	timeout time.Duration
	reason  string
}

// next returns the claim's next deadline; none once it is registered.
func next(claim *karpv1.NodeClaim, launchTimeout time.Duration) (deadline, bool) {
	steps := []struct {
		condition string
		timeout   time.Duration
		reason    string
	}{
		{karpv1.ConditionLaunched, launchTimeout, "launch_timeout"},
		{karpv1.ConditionRegistered, RegistrationTimeout, "registration_timeout"},
	}
	for _, s := range steps {
		// A condition that nobody has written yet counts from the claim's creation.
		since := claim.CreationTimestamp.Time
		if c, ok := condition.Get(claim, s.condition); ok {
			if c.Status == metav1.ConditionTrue {
				continue
			}
			since = c.LastTransitionTime.Time
		}
		return deadline{at: since.Add(s.timeout), timeout: s.timeout, reason: s.reason}, true
	}
	return deadline{}, false
}
