// Package registration makes a Node that has joined one of ours: it bears what its NodeClaim says.
package registration

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// healthTracker counts the claims of a pool that have registered.
type healthTracker interface {
	Registered(ctx context.Context, claim *karpv1.NodeClaim) error
}

// Reconciler registers the Nodes of launched NodeClaims.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Hooks are asked before a Node counts as registered. There may be none.
	Hooks   []Hook
	Health  healthTracker
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.registration").
		For(&karpv1.NodeClaim{}).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequests(mgr.GetClient()))).
		WithOptions(eventfilter.Options(50, time.Second, time.Minute)).
		Complete(patch.Retry(r))
}

// Reconcile registers the claim's Node if it has appeared.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	if claim.DeletionTimestamp != nil ||
		!condition.IsTrue(claim, karpv1.ConditionLaunched) || !condition.IsUnknown(claim, karpv1.ConditionRegistered) {
		return reconcile.Result{}, nil
	}
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil {
		return reconcile.Result{}, err
	}
	// A Node that is being deleted cannot be given a finalizer any more, and will not be a node.
	nodes = slices.DeleteFunc(nodes, func(n corev1.Node) bool { return n.DeletionTimestamp != nil })
	before := claim.DeepCopy()
	var asked answers
	switch len(nodes) {
	case 0:
		// Why a Node is late is said by who looks into it.
		if c, _ := condition.Get(claim, karpv1.ConditionRegistered); c.Reason == condition.ReasonAwaitingReconciliation {
			condition.SetUnknown(claim, karpv1.ConditionRegistered, "NodeNotFound", "Node not registered with cluster", r.Now())
		}
	case 1:
		asked, err = r.adopt(ctx, claim, &nodes[0])
		if err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		before.ObjectMeta = *claim.ObjectMeta.DeepCopy() // adopt has written it
		if asked.pending() {
			condition.SetUnknown(claim, karpv1.ConditionRegistered, "RegistrationHookPending", asked.message(), r.Now())
			break
		}
		claim.Status.NodeName = nodes[0].Name
		condition.SetTrue(claim, karpv1.ConditionRegistered, r.Now())
	default:
		condition.SetFalse(claim, karpv1.ConditionRegistered, "MultipleNodesFound", "Invariant violated, matched multiple nodes", r.Now())
	}
	if !equality.Semantic.DeepEqual(before.Status, claim.Status) {
		if err := r.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	if condition.IsTrue(claim, karpv1.ConditionRegistered) {
		r.Metrics.NodesCreated.WithLabelValues(claim.Labels[karpv1.LabelNodePool], claim.Labels[corev1.LabelTopologyZone]).Inc()
		r.Log.Info("registered nodeclaim", "NodeClaim", claim.Name, "Node", claim.Status.NodeName, "provider-id", claim.Status.ProviderID)
		return reconcile.Result{}, r.Health.Registered(ctx, claim)
	}
	return reconcile.Result{RequeueAfter: asked.wait}, asked.err
}

// adopt writes onto the node what its claim says, in one patch that fails if the node has changed since
// it was read: the kubelet and the cloud controller manager write taints too, and none may be lost or come back. They do so just
// now, so that the cache is often behind; the API server itself is asked then.
// While a hook is not satisfied the node keeps the taint that holds pods off.
func (r *Reconciler) adopt(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) (answers, error) {
	if node.Labels[karpv1.LabelRegistered] == "true" {
		// The status write after an earlier patch was lost. The node is done, and taints removed since stay removed.
		return answers{}, nil
	}
	if !slices.ContainsFunc(node.Spec.Taints, unregistered) {
		r.Log.Error("node joined without the taint that keeps pods off until it is registered", "NodeClaim", claim.Name, "Node", node.Name, "taint", karpv1.TaintKeyUnregistered)
		r.Events.Warn(claim, "UnregisteredTaintMissing", "Node %s joined without taint %s: pods may have landed before its labels and taints were in place", node.Name, karpv1.TaintKeyUnregistered)
	}
	asked := ask(ctx, r.Hooks, claim, node)
	if err := r.label(ctx, claim, asked); err != nil {
		return asked, err
	}
	joined, now := node.UID, &corev1.Node{}
	now.Name = node.Name
	return asked, patch.Change(ctx, r.Client, r.Live, now, func(n *corev1.Node) error {
		switch {
		case n.UID != joined || n.DeletionTimestamp != nil:
			return apierrors.NewConflict(corev1.Resource("nodes"), n.Name, errors.New("it is not the Node any more that has joined"))
		case n.Labels[karpv1.LabelRegistered] == "true": // see above
			return nil
		}
		syncNode(claim, n, !asked.pending())
		return nil
	}, func(n *corev1.Node, patch client.Patch) error { return r.Client.Patch(ctx, n, patch) })
}

// label gives the claim the labels that hooks want it to have.
func (r *Reconciler) label(ctx context.Context, claim *karpv1.NodeClaim, asked answers) error {
	before := claim.DeepCopy()
	for key, value := range asked.labels {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, key, value)
	}
	if maps.Equal(before.Labels, claim.Labels) {
		return nil
	}
	return r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// syncNode makes node bear its claim's finalizer, owner, labels, annotations and taints, and marks it registered
// if all is well with it.
func syncNode(claim *karpv1.NodeClaim, node *corev1.Node, registered bool) {
	first := controllerutil.AddFinalizer(node, karpv1.FinalizerTermination)
	own(claim, node)
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	// Taints are written once: one that somebody has removed since, while a hook was pending, stays removed.
	if first && node.Labels[karpv1.LabelDoNotSyncTaints] != "true" {
		addMissing(node, claim.Spec.Taints)
		if !joinedAsTold(claim, node) {
			addMissing(node, claim.Spec.StartupTaints)
		}
	}
	maps.Copy(node.Labels, claim.Labels)
	if registered {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, unregistered)
		node.Labels[karpv1.LabelRegistered] = "true"
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	for key, value := range claim.Annotations {
		// Which pods the claim was bought for is between us and the claim.
		if key != karpv1.AnnotationNominatedPods && key != karpv1.AnnotationNominatedBuffers {
			node.Annotations[key] = value
		}
	}
}

// joinedAsTold tells that the node's kubelet was configured by user data of ours, by a label and the taint that are in it.
// Such a node joins with its startup taints; one that is not there any more was removed by its owner, and stays removed.
// It is asked before the node has been given the claim's labels.
func joinedAsTold(claim *karpv1.NodeClaim, node *corev1.Node) bool {
	pool := claim.Labels[karpv1.LabelNodePool]
	return pool != "" && node.Labels[karpv1.LabelNodePool] == pool && slices.ContainsFunc(node.Spec.Taints, unregistered)
}

func own(claim *karpv1.NodeClaim, node *corev1.Node) {
	block := true
	ref := metav1.OwnerReference{
		APIVersion: karpv1.GroupVersion.String(), Kind: "NodeClaim", Name: claim.Name, UID: claim.UID, BlockOwnerDeletion: &block,
	}
	if !slices.ContainsFunc(node.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.APIVersion == ref.APIVersion && o.Kind == ref.Kind && o.UID == ref.UID
	}) {
		node.OwnerReferences = append(node.OwnerReferences, ref)
	}
}

func addMissing(node *corev1.Node, taints []corev1.Taint) {
	for _, t := range taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			node.Spec.Taints = append(node.Spec.Taints, t)
		}
	}
}

func unregistered(t corev1.Taint) bool {
	return t.Key == karpv1.TaintKeyUnregistered && t.Effect == corev1.TaintEffectNoExecute
}
