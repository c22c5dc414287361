// Package buffer keeps the status of CapacityBuffers: their pod template and their number of replicas. Provisioning,
// which it triggers, finds the capacity for them.
package buffer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
)

const (
	// recheckInterval is the time between two reconciles of a buffer, and attempts to find capacity for it, when
	// nothing changes.
	recheckInterval = 30 * time.Second
	// conflictRetry is the delay after another writer has changed the status.
	conflictRetry = time.Second
)

// batch triggers a provisioning pass.
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

// Reconcile resolves a buffer and triggers provisioning for it. The deletion of a buffer triggers it, too.
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
	shape, err := cluster.ResolvePodTemplate(ctx, r.Client, b)
	var unresolved *cluster.PodTemplateError
	if err != nil && !errors.As(err, &unresolved) {
		return reconcile.Result{}, fmt.Errorf("resolve capacity buffer %s: %w", req, err)
	}
	before := b.DeepCopy()
	b.Status.ProvisioningStrategy = b.Spec.ProvisioningStrategy
	b.Status.PodTemplateRef, b.Status.PodTemplateGeneration, b.Status.Replicas = nil, nil, nil
	if unresolved != nil {
		r.setCondition(b, metav1.Condition{
			Type: bufferv1.ConditionReadyForProvisioning, Status: metav1.ConditionFalse, Reason: unresolved.Reason, Message: unresolved.Message,
		})
		r.setCondition(b, metav1.Condition{
			Type: bufferv1.ConditionProvisioning, Status: metav1.ConditionFalse,
			Reason: bufferv1.ReasonNotReadyForProvisioning, Message: unresolved.Message,
		})
	} else {
		admitted, why, err := r.withinQuotas(ctx, b)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("read the quotas of capacity buffer %s: %w", req, err)
		}
		r.setResolved(b, shape)
		r.setAdmitted(b, admitted, why)
	}
	_, err = patch.StatusFrom(ctx, r.Client, before, b)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.Batch.Trigger(b.UID)
	return reconcile.Result{RequeueAfter: recheckInterval}, nil
}

// setResolved writes the replicas of a resolved buffer. Provisioning writes whether there is capacity.
func (r *Reconciler) setResolved(b *bufferv1.CapacityBuffer, shape cluster.Shape) {
	chunks := buffer.Chunks(&b.Spec, shape.Template, shape.Scalable)
	b.Status.Replicas = &chunks
	if b.Spec.PodTemplateRef != nil {
		b.Status.PodTemplateRef, b.Status.PodTemplateGeneration = b.Spec.PodTemplateRef, shape.Generation
	}
	r.setCondition(
		b,
		metav1.Condition{Type: bufferv1.ConditionReadyForProvisioning, Status: metav1.ConditionTrue, Reason: bufferv1.ReasonResolved},
	)
	if chunks == 0 {
		r.setCondition(b, metav1.Condition{
			Type: bufferv1.ConditionProvisioning, Status: metav1.ConditionFalse,
			Reason: bufferv1.ReasonBufferEmpty, Message: "the buffer has no replicas to keep capacity for",
		})
	}
}

// withinQuotas returns how many of the buffer's pods the ResourceQuotas of its namespace allow, beside the buffers there that were created
// before, and which quota allows no more. It is -1 if the namespace has no quota.
func (r *Reconciler) withinQuotas(ctx context.Context, b *bufferv1.CapacityBuffer) (admitted int32, why string, err error) {
	var list corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &list, client.InNamespace(b.Namespace)); err != nil {
		return 0, "", err
	}
	if len(list.Items) == 0 {
		return -1, "", nil
	}
	var buffers bufferv1.CapacityBufferList
	if err := r.Client.List(ctx, &buffers, client.InNamespace(b.Namespace)); err != nil {
		return 0, "", err
	}
	slices.SortFunc(buffers.Items, func(x, y bufferv1.CapacityBuffer) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	quotas := buffer.NewQuotas(list.Items)
	for i := range buffers.Items {
		other := &buffers.Items[i]
		if other.DeletionTimestamp != nil {
			continue
		}
		shape, err := cluster.ResolvePodTemplate(ctx, r.Client, other)
		var unresolved *cluster.PodTemplateError
		if errors.As(err, &unresolved) {
			continue
		}
		if err != nil {
			return 0, "", err
		}
		admitted, why = quotas.Admit(shape.Template, buffer.Chunks(&other.Spec, shape.Template, shape.Scalable))
		if other.Name == b.Name {
			return admitted, why, nil
		}
	}
	return 0, "", nil // the buffer has just been deleted
}

// setAdmitted lowers the replicas to those that quotas allow; a negative number is all.
func (r *Reconciler) setAdmitted(b *bufferv1.CapacityBuffer, admitted int32, why string) {
	if admitted < 0 {
		meta.RemoveStatusCondition(&b.Status.Conditions, bufferv1.ConditionLimitedByQuotas)
		return
	}
	c := metav1.Condition{
		Type: bufferv1.ConditionLimitedByQuotas, Status: metav1.ConditionFalse, Reason: bufferv1.ReasonWithinQuotas,
	}
	if why != "" {
		c.Status, c.Reason = metav1.ConditionTrue, bufferv1.ReasonQuotasAllocated
		c.Message = fmt.Sprintf("capacity for %d of %d replicas is kept: %s", admitted, *b.Status.Replicas, why)
		b.Status.Replicas = &admitted
	}
	r.setCondition(b, c)
	if admitted == 0 && why != "" {
		r.setCondition(b, metav1.Condition{
			Type: bufferv1.ConditionProvisioning, Status: metav1.ConditionFalse, Reason: bufferv1.ReasonBufferEmpty, Message: c.Message,
		})
	}
}

func (r *Reconciler) setCondition(b *bufferv1.CapacityBuffer, c metav1.Condition) {
	c.ObservedGeneration, c.LastTransitionTime = b.Generation, metav1.NewTime(r.Now())
	meta.SetStatusCondition(&b.Status.Conditions, c)
}
