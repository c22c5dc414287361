// Package registration registers the Node of a NodeClaim: it gives a Node that has joined the labels, taints, owner and
// finalizer of its claim.
package registration

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// Live reads from the API server.
	Live client.Reader
	// Hooks must be satisfied before a Node counts as registered. There may be none.
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
		For(&karpv1.NodeClaim{}, builder.WithPredicates(eventfilter.Claims(awaitsNode))).
		Watches(
			&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequestsWhere(mgr.GetClient(), awaitsNode)),
			builder.WithPredicates(eventfilter.IgnoreHeartbeats()),
		).
		WithOptions(eventfilter.BackoffOptions(50, time.Second, time.Minute)).
		Complete(patch.RequeueOnConflict(r))
}

// awaitsNode reports whether the claim has an instance with a Node that is not registered yet.
func awaitsNode(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp == nil && condition.IsTrue(claim, karpv1.ConditionLaunched) &&
		condition.IsUnknown(claim, karpv1.ConditionRegistered)
}

// Reconcile registers the claim's Node if it has appeared.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil || !awaitsNode(claim) {
		return reconcile.Result{}, err
	}
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil {
		return reconcile.Result{}, err
	}
	// A Node that is being deleted accepts no finalizer any more, and will not be a node.
	nodes = slices.DeleteFunc(nodes, func(n corev1.Node) bool { return n.DeletionTimestamp != nil })
	before := claim.DeepCopy()
	var hooks hookResults
	switch len(nodes) {
	case 0:
		// The join controller reports why a Node is late.
		if c, _ := condition.Get(claim, karpv1.ConditionRegistered); c.Reason == condition.ReasonAwaitingReconciliation {
			noNode := condition.Because(karpv1.ReasonNodeNotFound, karpv1.MessageNodeNotFound)
			condition.SetUnknown(claim, karpv1.ConditionRegistered, noNode, r.Now())
		}
	case 1:
		hooks, err = r.register(ctx, claim, &nodes[0])
		if err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		before.ObjectMeta = *claim.ObjectMeta.DeepCopy() // register has written it
		if hooks.pending() {
			condition.SetUnknown(claim, karpv1.ConditionRegistered, condition.Because("RegistrationHookPending", hooks.message()), r.Now())
			break
		}
		claim.Status.NodeName = nodes[0].Name
		condition.SetTrue(claim, karpv1.ConditionRegistered, r.Now())
	default:
		condition.SetFalse(
			claim,
			karpv1.ConditionRegistered,
			condition.Because("MultipleNodesFound", "Invariant violated, matched multiple nodes"),
			r.Now(),
		)
	}
	if _, err := patch.StatusIfSame(ctx, r.Client, before, claim); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if condition.IsTrue(claim, karpv1.ConditionRegistered) {
		r.Metrics.NodesCreated.WithLabelValues(claim.Labels[karpv1.LabelNodePool], claim.Labels[corev1.LabelTopologyZone]).Inc()
		r.Log.Info("registered nodeclaim", "NodeClaim", claim.Name, "Node", claim.Status.NodeName, "provider-id", claim.Status.ProviderID)
		return reconcile.Result{}, r.Health.Registered(ctx, claim)
	}
	return reconcile.Result{RequeueAfter: hooks.requeueAfter}, hooks.err
}

// register writes the claim's metadata and taints onto the node, in one patch that fails if the node's taints have changed
// since it was read: the kubelet and the cloud controller manager write taints too, and none may be lost or come back.
// They write at the same time, so the cache is often stale; after a conflict the node is read from the API server. While
// a hook is not satisfied the node keeps the taint that keeps pods away.
func (r *Reconciler) register(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) (hookResults, error) {
	if node.Labels[karpv1.LabelRegistered] == "true" {
		// The status write after an earlier patch was lost. The node is complete, and taints removed since stay removed.
		return hookResults{}, nil
	}
	if !slices.ContainsFunc(node.Spec.Taints, unregistered) {
		r.Log.Error(
			"node joined without the taint that keeps pods off until it is registered",
			"NodeClaim",
			claim.Name,
			"Node",
			node.Name,
			"taint",
			karpv1.TaintKeyUnregistered,
		)
		r.Events.Warn(
			claim,
			"UnregisteredTaintMissing",
			"Node %s joined without taint %s: pods may have been scheduled to it before its labels and taints were in place",
			node.Name,
			karpv1.TaintKeyUnregistered,
		)
	}
	hooks := runHooks(ctx, r.Hooks, claim, node)
	if err := r.labelClaim(ctx, claim, hooks.labels); err != nil {
		return hooks, err
	}
	joined, current := node.UID, &corev1.Node{}
	current.Name = node.Name
	clients := patch.Clients{Client: r.Client, Live: r.Live}
	return hooks, patch.Node(ctx, clients, current, func(n *corev1.Node) error {
		switch {
		case n.UID != joined || n.DeletionTimestamp != nil:
			return apierrors.NewConflict(corev1.Resource("nodes"), n.Name, errors.New("it is not the Node that has joined"))
		case n.Labels[karpv1.LabelRegistered] == "true": // see above
			return nil
		}
		syncNode(claim, n, !hooks.pending())
		return nil
	})
}

// labelClaim sets the labels from hooks on the claim.
func (r *Reconciler) labelClaim(ctx context.Context, claim *karpv1.NodeClaim, labels map[string]string) error {
	_, err := patch.Object(ctx, r.Client, claim, func() {
		for key, value := range labels {
			metav1.SetMetaDataLabel(&claim.ObjectMeta, key, value)
		}
	})
	return err
}

// syncNode copies its claim's finalizer, owner, labels, annotations and taints to the node, and marks it registered if
// registered is true.
func syncNode(claim *karpv1.NodeClaim, node *corev1.Node, registered bool) {
	first := controllerutil.AddFinalizer(node, karpv1.FinalizerTermination)
	setOwner(claim, node)
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	// Taints are written once: one that another writer removes while a hook is pending stays removed.
	if first && node.Labels[karpv1.LabelDoNotSyncTaints] != "true" {
		addMissingTaints(node, claim.Spec.Taints)
		if !joinedWithUserData(claim, node) {
			addMissingTaints(node, claim.Spec.StartupTaints)
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
		// The pods for which the claim was launched concern only the claim.
		if key != karpv1.AnnotationNominatedPods && key != karpv1.AnnotationNominatedBuffers && key != karpv1.AnnotationPodClasses {
			node.Annotations[key] = value
		}
	}
}

// joinedWithUserData reports whether our user data configured the node's kubelet, by a label and the taint that are in
// it. Such a node joins with its startup taints; one that is missing was removed by its owner, and stays removed. The
// check must run before the node gets the claim's labels.
func joinedWithUserData(claim *karpv1.NodeClaim, node *corev1.Node) bool {
	pool := claim.Labels[karpv1.LabelNodePool]
	return pool != "" && node.Labels[karpv1.LabelNodePool] == pool && slices.ContainsFunc(node.Spec.Taints, unregistered)
}

func setOwner(claim *karpv1.NodeClaim, node *corev1.Node) {
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

func addMissingTaints(node *corev1.Node, taints []corev1.Taint) {
	for _, t := range taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.MatchTaint(&t) }) {
			node.Spec.Taints = append(node.Spec.Taints, t)
		}
	}
}

func unregistered(t corev1.Taint) bool {
	return t.Key == karpv1.TaintKeyUnregistered && t.Effect == corev1.TaintEffectNoExecute
}
