// Package buffer keeps the status of CapacityBuffers: what their pods look like, and how many of them there are to be room
// for. Finding the room is a matter of provisioning, which is woken for it.
package buffer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
)

const (
	// again is how often a buffer is looked at, and room sought for it, when nothing about it changes.
	again = 30 * time.Second
	// raced is how soon after somebody else has written its status.
	raced = time.Second
)

// batch makes a provisioning pass come.
type batch interface{ Trigger(uid types.UID) }

// Reconciler resolves buffers.
type Reconciler struct {
	Client client.Client
	Batch  batch
	Log    *slog.Logger
	Now    func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr).
		Named("capacitybuffer").
		For(&bufferv1.CapacityBuffer{}, builder.WithPredicates(predicate.Or(eventfilter.IgnoreStatusUpdates(), resolutionChanged())))
	for _, w := range r.watches() {
		b = b.Watches(w.object, handler.EnqueueRequestsFromMapFunc(w.buffers), builder.WithPredicates(w.when))
	}
	return b.Complete(r)
}

// Reconcile resolves a buffer and has room sought for it. The room of one that is gone is given up.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	b := &bufferv1.CapacityBuffer{}
	err := r.Client.Get(ctx, req.NamespacedName, b)
	if apierrors.IsNotFound(err) || err == nil && b.DeletionTimestamp != nil {
		r.Batch.Trigger(types.UID("capacity-buffer/" + req.String()))
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	shape, err := cluster.ShapeOf(ctx, r.Client, b)
	var unresolved *cluster.ShapeError
	if err != nil && !errors.As(err, &unresolved) {
		return reconcile.Result{}, fmt.Errorf("resolve capacity buffer %s: %w", req, err)
	}
	before := b.DeepCopy()
	b.Status.ProvisioningStrategy = b.Spec.ProvisioningStrategy
	b.Status.PodTemplateRef, b.Status.PodTemplateGeneration, b.Status.Replicas = nil, nil, nil
	if unresolved != nil {
		r.judge(b, bufferv1.ConditionReadyForProvisioning, metav1.ConditionFalse, unresolved.Reason, unresolved.Message)
		r.judge(b, bufferv1.ConditionProvisioning, metav1.ConditionFalse, bufferv1.ReasonNotReadyForProvisioning, unresolved.Message)
	} else {
		r.resolved(b, shape)
	}
	if !equality.Semantic.DeepEqual(before.Status, b.Status) {
		err := r.Client.Status().Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: raced}, nil
		}
		if err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	r.Batch.Trigger(b.UID)
	return reconcile.Result{RequeueAfter: again}, nil
}

// resolved writes what a shape comes to. Whether there is room, provisioning says.
func (r *Reconciler) resolved(b *bufferv1.CapacityBuffer, shape cluster.Shape) {
	chunks := buffer.Chunks(&b.Spec, shape.Template, shape.Scalable)
	b.Status.Replicas = &chunks
	if b.Spec.PodTemplateRef != nil {
		b.Status.PodTemplateRef, b.Status.PodTemplateGeneration = b.Spec.PodTemplateRef, shape.Generation
	}
	r.judge(b, bufferv1.ConditionReadyForProvisioning, metav1.ConditionTrue, bufferv1.ReasonResolved, "")
	if chunks == 0 {
		r.judge(b, bufferv1.ConditionProvisioning, metav1.ConditionFalse, bufferv1.ReasonBufferEmpty, "there is nothing to keep room for")
	}
}

func (r *Reconciler) judge(b *bufferv1.CapacityBuffer, typ string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: typ, Status: status, Reason: reason, Message: message, ObservedGeneration: b.Generation, LastTransitionTime: metav1.NewTime(r.Now()),
	})
}
