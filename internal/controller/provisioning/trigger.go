package provisioning

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// retriggerInterval is how often a pod that still needs capacity, or a node that is terminating, triggers another pass.
const retriggerInterval = 10 * time.Second

// PodTrigger opens a batch window for a pod that needs a node, and again while it does.
type PodTrigger struct {
	Client    client.Client
	Batch     *Batch
	Decisions *podlatency.Decisions
}

// Register adds the reconciler to mgr.
func (t *PodTrigger) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("provisioner.trigger.pod").
		For(&corev1.Pod{}, builder.WithPredicates(provisionable())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(t)
}

// provisionable leaves out the pods for which Reconcile does nothing: nearly all. A queue with an entry for each pod of a large cluster
// keeps its memory.
func provisionable() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return snapshot.Provisionable(o.(*corev1.Pod)) })
}

// Reconcile triggers for a provisionable pod.
func (t *PodTrigger) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := t.Client.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !snapshot.Provisionable(pod) {
		return reconcile.Result{}, nil
	}
	if t.Decisions.See(pod) {
		t.Batch.TriggerFirst(pod.UID)
	} else {
		t.Batch.Trigger(pod.UID)
	}
	return reconcile.Result{RequeueAfter: retriggerInterval}, nil
}

// ClaimTrigger opens a batch window when a node begins to terminate, since its pods will need other nodes.
type ClaimTrigger struct {
	Client client.Client
	Batch  *Batch
}

// Register adds the reconciler to mgr.
func (t *ClaimTrigger) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("provisioner.trigger.node").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(eventfilter.Deleting())).
		Complete(t)
}

// Reconcile triggers for a claim that is being deleted.
func (t *ClaimTrigger) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim := &karpv1.NodeClaim{}
	if err := t.Client.Get(ctx, req.NamespacedName, claim, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if claim.DeletionTimestamp == nil {
		return reconcile.Result{}, nil
	}
	t.Batch.Trigger(claim.UID)
	return reconcile.Result{RequeueAfter: retriggerInterval}, nil
}
