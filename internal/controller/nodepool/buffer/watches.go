package buffer

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// watch is a type of object on which buffers depend.
type watch struct {
	object client.Object
	// buffers maps an object to the buffers that a change of it concerns.
	buffers handler.MapFunc
	// when accepts the changes that matter.
	when predicate.Predicate
}

// watches are all of them: the workloads and templates that buffers refer to, and the nodes that may have capacity for
// them. A reconcile reads the workloads through the same cache, so it finds what triggered it.
func (r *Reconciler) watches() []watch {
	out := []watch{
		{&corev1.PodTemplate{}, r.buffersOf("PodTemplate"), predicate.GenerationChangedPredicate{}},
		{&corev1.ResourceQuota{}, r.inNamespace, predicate.ResourceVersionChangedPredicate{}},
		{&karpv1.NodeClaim{}, r.all, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return capacityChanged(e.ObjectOld.(*karpv1.NodeClaim), e.ObjectNew.(*karpv1.NodeClaim))
		}}},
		{&corev1.Node{}, r.all, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return schedulabilityChanged(e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node))
		}}},
	}
	for _, kind := range cluster.TemplateRules() {
		out = append(out, watch{kind, r.all, predicate.ResourceVersionChangedPredicate{}})
	}
	for _, kind := range cluster.Scalables() {
		out = append(out, watch{kind.Object, r.buffersOf(kind.Name), predicate.GenerationChangedPredicate{}})
	}
	return out
}

// resolutionChanged accepts a change of whether a buffer is resolved, and of its replicas: a provisioning pass may have
// run before the cache showed it.
func resolutionChanged() predicate.Predicate {
	of := func(o client.Object) (resolved bool, replicas *int32) {
		b := o.(*bufferv1.CapacityBuffer)
		return meta.IsStatusConditionTrue(b.Status.Conditions, bufferv1.ConditionReadyForProvisioning), b.Status.Replicas
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		wasResolved, had := of(e.ObjectOld)
		isResolved, has := of(e.ObjectNew)
		return wasResolved != isResolved || !equality.Semantic.DeepEqual(had, has)
	}}
}

// capacityChanged reports whether a claim has come nearer to a node that pods fit on, or is being deleted.
func capacityChanged(before, after *karpv1.NodeClaim) bool {
	for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized} {
		if condition.IsTrue(after, typ) != condition.IsTrue(before, typ) {
			return true
		}
	}
	return before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
}

// schedulabilityChanged reports whether a Node accepts other pods than before.
func schedulabilityChanged(before, after *corev1.Node) bool {
	return cluster.NodeReady(before) != cluster.NodeReady(after) ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		before.Labels[karpv1.LabelInitialized] != after.Labels[karpv1.LabelInitialized] ||
		!slices.Equal(before.Spec.Taints, after.Spec.Taints) ||
		!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable)
}

// buffersOf maps an object of a kind to the buffers that refer to it.
func (r *Reconciler) buffersOf(kind string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.requests(ctx, func(b *bufferv1.CapacityBuffer) bool {
			if kind == "PodTemplate" {
				return b.Spec.PodTemplateRef != nil && b.Spec.PodTemplateRef.Name == o.GetName()
			}
			ref := b.Spec.ScalableRef
			return ref != nil && ref.Kind == kind && ref.Name == o.GetName() && (ref.APIGroup == "" || ref.APIGroup == appsv1.GroupName)
		}, client.InNamespace(o.GetNamespace()))
	}
}

// all maps any object to all buffers: each may have its capacity there.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.requests(ctx, func(*bufferv1.CapacityBuffer) bool { return true })
}

// inNamespace maps an object to the buffers of its namespace.
func (r *Reconciler) inNamespace(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, func(*bufferv1.CapacityBuffer) bool { return true }, client.InNamespace(o.GetNamespace()))
}

func (r *Reconciler) requests(
	ctx context.Context,
	match func(*bufferv1.CapacityBuffer) bool,
	in ...client.ListOption,
) (out []reconcile.Request) {
	var list bufferv1.CapacityBufferList
	if err := r.Client.List(ctx, &list, append(in, client.UnsafeDisableDeepCopy)...); err != nil {
		r.Log.Error("listing capacity buffers", "error", err)
		return nil
	}
	for i := range list.Items {
		if match(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}
