// Package tagging gives instances the names by which people find them, once their nodes have joined.
package tagging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// namer tags an instance of ours with the names of its node, claim and cluster, as far as it has no such tags. The
// error is cloud.ErrNotFound when the instance is gone.
type namer interface {
	Name(ctx context.Context, providerID, node, claim string) error
}

// Reconciler tags the instances of NodeClaims that have a node. The claim's annotations say that it is done.
type Reconciler struct {
	Client client.Client
	Cloud  namer
	Log    *slog.Logger
}

// Register adds the reconciler to mgr. Tagging is in no hurry, and EC2 limits the calls that change something.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.tagging").
		For(&karpv1.NodeClaim{}).
		WithOptions(controller.Options{
			// Most of the time is spent waiting for others, so that one call reads many instances; EC2 lets 10 tags a second through.
			MaxConcurrentReconciles: 50,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
		}).
		Complete(patch.Retry(r))
}

// Reconcile tags the claim's instance and writes down that it has.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil || !wanting(claim) {
		return reconcile.Result{}, err
	}
	err = r.Cloud.Name(ctx, claim.Status.ProviderID, claim.Status.NodeName, claim.Name)
	if errors.Is(err, cloudprovider.ErrNotFound) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("tag the instance of node claim %q: %w", claim.Name, err)
	}
	before := claim.DeepCopy()
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[awsv1.AnnotationTagged], claim.Annotations[awsv1.AnnotationClusterNameTagged] = "true", "true"
	err = r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// wanting reports whether the claim has a node, and its instance has not been tagged since.
func wanting(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Status.NodeName != "" && claim.Status.ProviderID != "" &&
		(claim.Annotations[awsv1.AnnotationTagged] != "true" || claim.Annotations[awsv1.AnnotationClusterNameTagged] != "true")
}
