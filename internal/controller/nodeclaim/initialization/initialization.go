// Package initialization decides when a registered node is ready for use: Ready, free of startup taints, and with every
// requested resource.
package initialization

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/consistency"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Reconciler initializes registered NodeClaims.
type Reconciler struct {
	Client client.Client
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time
	// GracePeriod states how long after registration a startup taint may stay, or the node may be not Ready, before the condition
	// names it; a minute if not set.
	GracePeriod time.Duration
	// Removals knows whether the owners of startup taints are at work; nil knows nothing.
	Removals *cluster.TaintRemovals
	// RepairStaleTaints removes the taint of the cloud controller manager from a node that it has finished with.
	RepairStaleTaints bool
	// Devices makes nodes wait for the DRA drivers that their pods need.
	Devices bool
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr).
		Named("nodeclaim.initialization").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(eventfilter.Claims(initializes))).
		Watches(
			&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequestsWhere(mgr.GetClient(), initializes)),
			builder.WithPredicates(eventfilter.IgnoreHeartbeats()),
		).
		Watches(&corev1.Node{}, handler.Funcs{UpdateFunc: r.observe})
	if r.Devices {
		b = b.Watches(&resourcev1.ResourceSlice{}, handler.EnqueueRequestsFromMapFunc(claimRequests(mgr.GetClient())))
	}
	return b.
		WithOptions(eventfilter.BackoffOptions(50, time.Second, time.Minute)).
		Complete(patch.RequeueOnConflict(r))
}

// initializes reports whether the claim's Node is registered and has not been initialized yet.
func initializes(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp == nil && !condition.IsTrue(claim, karpv1.ConditionRebooting) &&
		condition.IsTrue(claim, karpv1.ConditionRegistered) && condition.IsUnknown(claim, karpv1.ConditionInitialized)
}

// observe records the taints that others remove from a node. It enqueues nothing.
func (r *Reconciler) observe(_ context.Context, e ctrlevent.UpdateEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	before, was := e.ObjectOld.(*corev1.Node)
	after, is := e.ObjectNew.(*corev1.Node)
	if was && is {
		r.Removals.Observe(before, after, r.Now())
	}
}

// Reconcile sets Initialized, or records what it waits for. A change of the Node, or of its devices, enqueues it again.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil || !initializes(claim) {
		return reconcile.Result{}, err
	}
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := claim.DeepCopy()
	served, err := r.servedResources(ctx, claim, nodes)
	if err != nil {
		return reconcile.Result{}, err
	}
	reason, message := waitsFor(claim, nodes, served)
	if reason == "" && r.Devices {
		if reason, message, err = r.waitsForDrivers(ctx, claim, &nodes[0]); err != nil {
			return reconcile.Result{}, err
		}
	}
	if reason != "" {
		w := waiting{reason: reason, message: message}
		if len(nodes) == 1 {
			if w, err = r.overdue(ctx, claim, &nodes[0], w); err != nil || w.resolved {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
		}
		if rest := r.settling(claim, w.reason); rest > 0 {
			if w.recheckAfter > 0 {
				rest = min(rest, w.recheckAfter)
			}
			return reconcile.Result{RequeueAfter: rest}, nil
		}
		condition.SetUnknown(claim, karpv1.ConditionInitialized, condition.Because(w.reason, w.message), r.Now())
		return reconcile.Result{RequeueAfter: w.recheckAfter}, r.patchStatus(ctx, claim, before)
	}
	node := &nodes[0]
	if node.Labels[karpv1.LabelInitialized] != "true" {
		labeled := node.DeepCopy()
		metav1.SetMetaDataLabel(&labeled.ObjectMeta, karpv1.LabelInitialized, "true")
		if err := r.Client.Patch(ctx, labeled, client.MergeFrom(node)); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	if err := r.recordPods(ctx, claim, node); err != nil {
		return reconcile.Result{}, err
	}
	condition.SetTrue(claim, karpv1.ConditionInitialized, r.Now())
	// The consistency controller would find the same at once, and take a write of its own for each node that joins. What is not
	// consistent is left to it.
	if consistency.Consistent(claim, node) {
		condition.SetTrue(claim, karpv1.ConditionConsistentStateFound, r.Now())
	}
	if err := r.patchStatus(ctx, claim, before); err != nil {
		return reconcile.Result{}, err
	}
	r.Log.Info(
		"initialized nodeclaim",
		"NodeClaim",
		claim.Name,
		"Node",
		node.Name,
		"provider-id",
		claim.Status.ProviderID,
		"allocatable",
		node.Status.Allocatable,
	)
	return reconcile.Result{}, nil
}

// recordPods sets when a pod last came to the node. Pods often come before the claim is initialized, and that would take
// a write of its own.
func (r *Reconciler) recordPods(ctx context.Context, claim *karpv1.NodeClaim, node *corev1.Node) error {
	pods, err := cluster.SharedPodsOn(ctx, r.Client, node.Name)
	if err != nil {
		return err
	}
	if last := cluster.LastPodEvent(pods); last.After(claim.Status.LastPodEventTime.Time) {
		claim.Status.LastPodEventTime = metav1.Time{Time: last}
	}
	return nil
}

// settlingTime sets how long after its registration a node is not stated to wait for what every node waits for. Most are ready by then, and
// each reason would be a write for each node. A thousand nodes that join at once take 5 to 15 s from registration to initialization: with
// 5 s instead of 20, most of them got a reason, and those with two taints a second one.
const settlingTime = 20 * time.Second

// settling returns how much longer a reason why a node waits is not written. It is not positive if the reason is to be written now.
func (r *Reconciler) settling(claim *karpv1.NodeClaim, reason string) time.Duration {
	if reason != reasonNotReady && reason != reasonEphemeralTaint {
		return 0
	}
	registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
	return registered.LastTransitionTime.Add(settlingTime).Sub(r.Now())
}

// Reasons why every node waits for a while.
const (
	reasonNotReady       = "NodeNotReady"
	reasonEphemeralTaint = "KnownEphemeralTaintsExist"
)

func (r *Reconciler) patchStatus(ctx context.Context, claim, before *karpv1.NodeClaim) error {
	_, err := patch.StatusIfSame(ctx, r.Client, before, claim)
	return client.IgnoreNotFound(err)
}

// waitsFor returns the first requirement that a claim's node does not meet, as reason and message; empty if it meets
// them all. Taints match by key and effect, whatever their value. Served are resources that devices serve in place of a device plugin.
func waitsFor(claim *karpv1.NodeClaim, nodes []corev1.Node, served map[corev1.ResourceName]bool) (reason, message string) {
	if len(nodes) != 1 {
		return "NodeNotFound", fmt.Sprintf("%d nodes have provider ID %s", len(nodes), claim.Status.ProviderID)
	}
	node := &nodes[0]
	if !cluster.NodeReady(node) {
		return reasonNotReady, fmt.Sprintf("Node %s is not Ready", node.Name)
	}
	for _, t := range node.Spec.Taints {
		if slices.ContainsFunc(claim.Spec.StartupTaints, func(s corev1.Taint) bool { return s.MatchTaint(&t) }) {
			return "StartupTaintsExist", fmt.Sprintf("StartupTaint %q still exists", t.ToString())
		}
	}
	for _, t := range node.Spec.Taints {
		if snapshot.KnownEphemeral(&t) {
			return reasonEphemeralTaint, fmt.Sprintf("KnownEphemeralTaint %q still exists", t.ToString())
		}
	}
	for _, name := range unregistered(claim, node) {
		if !served[name] {
			return "ResourceNotRegistered", fmt.Sprintf("Resource %q was requested but not registered", name)
		}
	}
	return "", ""
}

// unregistered are the requested resources of which the node has none, sorted.
func unregistered(claim *karpv1.NodeClaim, node *corev1.Node) (out []corev1.ResourceName) {
	for _, name := range resourceNames(claim.Spec.Resources.Requests) {
		requested, have := claim.Spec.Resources.Requests[name], node.Status.Allocatable[name]
		if !requested.IsZero() && have.IsZero() {
			out = append(out, name)
		}
	}
	return out
}

func resourceNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
