// Package hydration completes NodeClaims and Nodes that an earlier version or another autoscaler wrote: the label of
// their node class, and the observed generation of conditions that do not change any more.
package hydration

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
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
		Watches(
			&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequests(mgr.GetClient())),
			builder.WithPredicates(eventfilter.IgnoreHeartbeats()),
		).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile labels the claim and its Node, and sets the observed generation of the claim's conditions.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	before, err := cluster.SharedOwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || before == nil {
		return reconcile.Result{}, err
	}
	if before.Labels[awsv1.LabelNodeClass] == before.Spec.NodeClassRef.Name && len(staleConditions(before)) == 0 {
		return reconcile.Result{}, client.IgnoreNotFound(r.labelNode(ctx, before))
	}
	claim := before.DeepCopy()
	metav1.SetMetaDataLabel(&claim.ObjectMeta, awsv1.LabelNodeClass, claim.Spec.NodeClassRef.Name)
	if _, err := patch.ObjectFrom(ctx, r.Client, before, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.labelNode(ctx, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before = claim.DeepCopy()
	for _, c := range staleConditions(before) {
		condition.Set(claim, c, r.Now())
	}
	_, err = patch.StatusFrom(ctx, r.Client, before, claim)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// labelNode labels the claim's Node, if there is exactly one.
func (r *Reconciler) labelNode(ctx context.Context, claim *karpv1.NodeClaim) error {
	nodes, err := cluster.SharedNodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil || len(nodes) != 1 || nodes[0].Labels[awsv1.LabelNodeClass] == claim.Spec.NodeClassRef.Name {
		return err
	}
	before := &nodes[0]
	node := before.DeepCopy()
	metav1.SetMetaDataLabel(&node.ObjectMeta, awsv1.LabelNodeClass, claim.Spec.NodeClassRef.Name)
	// A label conflicts with no other writer, so this patch needs no optimistic lock.
	return r.Client.Patch(ctx, node, client.MergeFrom(before))
}

// staleConditions are the decided conditions of an earlier generation of the claim: Launched, Registered and Initialized hold whatever the
// spec states now.
func staleConditions(claim *karpv1.NodeClaim) (out []metav1.Condition) {
	for _, typ := range claim.ConditionTypes().Dependents {
		c, _ := condition.Get(claim, typ)
		if c.Status != metav1.ConditionUnknown && c.ObservedGeneration != claim.Generation {
			out = append(out, c)
		}
	}
	return out
}
