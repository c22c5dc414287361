// Package liveness deletes NodeClaims that do not become nodes in time, or become nodes that never get Ready.
package liveness

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The timeouts of a claim's phases, from the last transition of the phase's condition.
const (
	LaunchTimeout       = 5 * time.Minute
	RegistrationTimeout = 15 * time.Minute
	// ReadinessTimeout sets how long a node may stay not Ready after its registration. It is as long as the registration
	// timeout: an instance that is of no use for so long most likely has a fault of its own, and costs money.
	ReadinessTimeout = 15 * time.Minute
)

// inUseRecheckInterval is the time between two checks of a not Ready node that is in use.
const inUseRecheckInterval = time.Minute

// healthTracker counts the claims of a pool that have failed.
type healthTracker interface {
	Failed(ctx context.Context, claim *karpv1.NodeClaim) error
}

// Reconciler deletes NodeClaims that exceed a timeout.
type Reconciler struct {
	Client client.Client
	Guard  *destroy.Guard
	Health healthTracker
	Events *event.Recorder
	// LaunchTimeout states how long a launch may take.
	LaunchTimeout time.Duration
	Metrics       *metrics.Metrics
	Log           *slog.Logger
	Now           func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(
		mgr,
	).Named(
		"nodeclaim.liveness",
	).For(
		&karpv1.NodeClaim{},
	).WithOptions(
		eventfilter.BackoffOptions(1, time.Second, time.Minute),
	).Complete(
		destroy.Requeue(patch.RequeueOnConflict(r)),
	)
}

// Reconcile deletes the claim if it is late, or requeues it for the time when it would be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	if claim.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	d, ok := nextDeadline(claim, r.LaunchTimeout)
	if !ok {
		return reconcile.Result{}, nil
	}
	if wait := d.at.Sub(r.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if d.unlessInUse {
		used, err := r.inUse(ctx, claim)
		if err != nil {
			return reconcile.Result{}, err
		}
		if used {
			return reconcile.Result{RequeueAfter: inUseRecheckInterval}, nil
		}
	}
	if err := r.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Fault, Reason: d.reason, Unchanged: true}); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.Log.Info("terminating due to timeout", "NodeClaim", claim.Name, "timeout", d.timeout, "reason", d.reason)
	r.Metrics.Disrupted(claim, d.reason)
	if d.unlessInUse {
		r.Events.Warn(claim, cluster.ReasonNotReadyStuck,
			"NodeClaim %s is terminated: its node %s was not Ready for %v and runs only daemons", claim.Name, claim.Status.NodeName, d.timeout)
		return reconcile.Result{}, nil // it has registered, and the pool's health counts registrations
	}
	return reconcile.Result{}, r.Health.Failed(ctx, claim)
}

// inUse reports whether the claim's node is of use after all: it is Ready by now, runs pods other than daemons, or has
// the annotation do-not-disrupt.
func (r *Reconciler) inUse(ctx context.Context, claim *karpv1.NodeClaim) (bool, error) {
	if claim.Annotations[karpv1.AnnotationDoNotDisrupt] == "true" {
		return true, nil
	}
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil {
		return false, err
	}
	for i := range nodes {
		node := &nodes[i]
		if cluster.NodeReady(node) || node.Annotations[karpv1.AnnotationDoNotDisrupt] == "true" {
			return true, nil
		}
		pods, err := cluster.PodsOn(ctx, r.Client, node.Name)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			return !snapshot.Terminal(p) && !snapshot.DaemonOwned(p) && !snapshot.Mirror(p)
		}) {
			return true, nil
		}
	}
	return false, nil
}

// deadline is the time when a claim exceeds a timeout, and which.
type deadline struct {
	at      time.Time
	timeout time.Duration
	reason  string
	// unlessInUse deadlines do not count while the node is in use.
	unlessInUse bool
}

// nextDeadline returns the claim's next deadline; none once it is registered, unless its node does not become Ready.
func nextDeadline(claim *karpv1.NodeClaim, launchTimeout time.Duration) (deadline, bool) {
	steps := []struct {
		condition string
		timeout   time.Duration
		reason    string
	}{
		{karpv1.ConditionLaunched, launchTimeout, "launch_timeout"},
		{karpv1.ConditionRegistered, RegistrationTimeout, "registration_timeout"},
	}
	for _, s := range steps {
		// A missing condition counts from the claim's creation.
		since := claim.CreationTimestamp.Time
		if c, ok := condition.Get(claim, s.condition); ok {
			if c.Status == metav1.ConditionTrue {
				continue
			}
			since = c.LastTransitionTime.Time
		}
		return deadline{at: since.Add(s.timeout), timeout: s.timeout, reason: s.reason}, true
	}
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	if initialized.Reason == cluster.ReasonNotReadyStuck && initialized.Status != metav1.ConditionTrue {
		registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
		at := registered.LastTransitionTime.Add(ReadinessTimeout)
		return deadline{at: at, timeout: ReadinessTimeout, reason: "readiness_timeout", unlessInUse: true}, true
	}
	return deadline{}, false
}
