package health

import (
	"context"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// Reconciler resets the health of a pool when the pool or its node class has changed: what failed before may work now.
type Reconciler struct {
	Client  client.Client
	Tracker *Tracker
	Log     *slog.Logger
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodepool.registrationhealth").
		For(&karpv1.NodePool{}).
		Watches(&awsv1.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(cluster.PoolRequests(mgr.GetClient()))).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile compares the generations that the condition was set for with the current ones.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ref := pool.Spec.Template.Spec.NodeClassRef
	if !awsv1.IsEC2NodeClass(ref) {
		return reconcile.Result{}, nil
	}
	class := &awsv1.EC2NodeClass{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := pool.DeepCopy()
	c, exists := condition.Get(pool, karpv1.ConditionNodeRegistrationHealthy)
	r.Tracker.restore(pool.UID, c.Status)
	if !exists || pool.Status.NodeClassObservedGeneration != class.Generation || c.ObservedGeneration != pool.Generation {
		r.Tracker.forget(pool.UID)
		condition.SetUnknown(
			pool,
			karpv1.ConditionNodeRegistrationHealthy,
			condition.Because(
				condition.ReasonAwaitingReconciliation,
				"no node has registered yet since the NodePool or its EC2NodeClass changed",
			),
			r.Tracker.now(),
		)
	}
	pool.Status.NodeClassObservedGeneration = class.Generation
	if unchanged(before, pool) {
		return reconcile.Result{}, nil
	}
	_, err := patch.StatusFrom(ctx, r.Client, before, pool)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}
