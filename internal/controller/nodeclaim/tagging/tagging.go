// Package tagging tags instances with the names of their node, claim and cluster, once their nodes have joined.
package tagging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// namer tags an instance of ours with the names of its node, claim and cluster, as far as the tags are missing. The
// error is cloudprovider.ErrNotFound when the instance is gone.
type namer interface {
	Name(ctx context.Context, providerID, node, claim string) error
}

// Reconciler tags the instances of NodeClaims that have a node. The claim's annotations record that they are tagged.
type Reconciler struct {
	Client client.Client
	Cloud  namer
	Log    *slog.Logger
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.tagging").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(eventfilter.Claims(needsTags))).
		WithOptions(controller.Options{
			// Most reconciles wait for others, so that one call describes many instances; EC2 admits 10 tagging calls
			// per second.
			MaxConcurrentReconciles: 50,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
		}).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile tags the claim's instance and records that on the claim.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil || !needsTags(claim) {
		return reconcile.Result{}, err
	}
	err = r.Cloud.Name(ctx, claim.Status.ProviderID, claim.Status.NodeName, claim.Name)
	if errors.Is(err, cloudprovider.ErrNotFound) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("tag the instance of node claim %q: %w", claim.Name, err)
	}
	err = r.record(ctx, claim)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// record writes on the claim that its instance is tagged. The claim has usually changed while EC2 tagged the instance, and the
// annotations rest on nothing but that it is the same claim: the UID is the only precondition. A conflict would repeat the calls to EC2.
func (r *Reconciler) record(ctx context.Context, claim *karpv1.NodeClaim) error {
	tagged, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         claim.UID,
		"annotations": map[string]string{awsv1.AnnotationTagged: "true", awsv1.AnnotationClusterNameTagged: "true"},
	}})
	if err != nil {
		return fmt.Errorf("record the tags of node claim %q: %w", claim.Name, err)
	}
	return r.Client.Patch(ctx, claim, client.RawPatch(types.MergePatchType, tagged))
}

// needsTags reports whether the claim has a node, and its instance was not tagged since.
func needsTags(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Status.NodeName != "" && claim.Status.ProviderID != "" &&
		(claim.Annotations[awsv1.AnnotationTagged] != "true" || claim.Annotations[awsv1.AnnotationClusterNameTagged] != "true")
}
