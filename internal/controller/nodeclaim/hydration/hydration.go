// Package hydration brings NodeClaims and Nodes up to date that were written by an earlier version or another autoscaler:
// the label of their node class, and the generation that decided conditions were last looked at for.
package hydration

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Reconciler hydrates NodeClaims and their Nodes.
type Reconciler struct {
	Client client.Client
	Now    func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.hydration").
		For(&karpv1.NodeClaim{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequests(mgr.GetClient()))).
		Complete(patch.Retry(r))
}

// Reconcile labels the claim and its Node, and carries the claim's conditions to its present generation.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	before := claim.DeepCopy()
	if metav1.SetMetaDataLabel(&claim.ObjectMeta, awsv1.LabelNodeClass, claim.Spec.NodeClassRef.Name); !equality.Semantic.DeepEqual(before.Labels, claim.Labels) {
		if err := r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	if err := r.node(ctx, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before = claim.DeepCopy()
	if !carry(claim, r.Now()) {
		return reconcile.Result{}, nil
	}
	err = r.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// node labels the claim's Node, if there is one and only one.
func (r *Reconciler) node(ctx context.Context, claim *karpv1.NodeClaim) error {
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil || len(nodes) != 1 {
		return err
	}
	node := &nodes[0]
	before := node.DeepCopy()
	if metav1.SetMetaDataLabel(&node.ObjectMeta, awsv1.LabelNodeClass, claim.Spec.NodeClassRef.Name); equality.Semantic.DeepEqual(before.Labels, node.Labels) {
		return nil
	}
	// A label takes nothing from anybody: whoever else has changed the Node meanwhile does not stand in its way.
	return r.Client.Patch(ctx, node, client.MergeFrom(before))
}

// carry looks at decided conditions anew for the claim's generation: what was launched, registered and initialized is
// so whatever the spec says now. It reports whether it changed something.
func carry(claim *karpv1.NodeClaim, now time.Time) (changed bool) {
	for _, typ := range claim.ConditionTypes().Dependents {
		c, _ := condition.Get(claim, typ)
		if c.Status != metav1.ConditionUnknown && c.ObservedGeneration != claim.Generation {
			changed = condition.Set(claim, c, now) || changed
		}
	}
	return changed
}
