package provisioning

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// PoolTrigger opens a batch window when a pool becomes ready: pods may be waiting for it.
type PoolTrigger struct {
	Client client.Client
	Batch  *Batch
}

// Register adds the reconciler to mgr.
func (t *PoolTrigger) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("provisioner.trigger.pool").
		For(&karpv1.NodePool{}, builder.WithPredicates(becomesReady())).
		Complete(t)
}

// becomesReady selects updates in which a pool becomes ready.
func becomesReady() predicate.Predicate {
	ready := func(o client.Object) bool { return condition.IsTrue(o.(*karpv1.NodePool), condition.Ready) }
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, // pods trigger by themselves when they are first seen
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return !ready(e.ObjectOld) && ready(e.ObjectNew) },
	}
}

// Reconcile triggers for a pool that exists.
func (t *PoolTrigger) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := t.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	t.Batch.Trigger(pool.UID)
	return reconcile.Result{}, nil
}
