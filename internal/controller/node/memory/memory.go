// Package memory reports how much memory nodes really have, so that further nodes of their instance type and image are
// planned with the real value instead of an estimate.
package memory

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// cloud records the memory of a node with an instance type and an image.
type cloud interface {
	NodeSeen(ctx context.Context, class *awsv1.EC2NodeClass, instanceType, imageID string, memory resource.Quantity) error
}

// Reconciler reads each node of ours once it is registered, and all registered nodes when the process starts.
type Reconciler struct {
	Client client.Client
	Cloud  cloud
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("providers.instancetype.capacity").
		For(&corev1.Node{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc:  func(e event.CreateEvent) bool { return reportsMemory(e.Object) },
			UpdateFunc:  func(e event.UpdateEvent) bool { return reportsMemory(e.ObjectNew) && !reportsMemory(e.ObjectOld) },
			DeleteFunc:  func(event.DeleteEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		Complete(patch.RequeueOnConflict(r))
}

// reportsMemory reports whether the node is registered and has its capacity of memory in the status.
func reportsMemory(o client.Object) bool {
	node, ok := o.(*corev1.Node)
	return ok && node.Labels[karpv1.LabelRegistered] == "true" && !node.Status.Capacity.Memory().IsZero()
}

// Reconcile records the node's memory.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !reportsMemory(node) || node.Spec.ProviderID == "" {
		return reconcile.Result{}, nil
	}
	claims, err := cluster.ClaimsOf(ctx, r.Client, node.Spec.ProviderID)
	if err != nil || len(claims) != 1 || !awsv1.IsEC2NodeClass(claims[0].Spec.NodeClassRef) {
		return reconcile.Result{}, err
	}
	class := &awsv1.EC2NodeClass{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: claims[0].Spec.NodeClassRef.Name}, class, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	err = r.Cloud.NodeSeen(ctx, class, node.Labels[corev1.LabelInstanceTypeStable], claims[0].Status.ImageID, *node.Status.Capacity.Memory())
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("record the memory of node %q: %w", node.Name, err)
	}
	return reconcile.Result{}, nil
}
