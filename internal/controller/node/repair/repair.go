// Package repair replaces nodes that have been unhealthy for too long, unless so many are unhealthy that the cause is
// likely a common one.
package repair

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/blastradius"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

const (
	// blockedRecheckInterval is the time when a node is checked again that is not repaired because too many others are unhealthy.
	blockedRecheckInterval = 5 * time.Minute
	// blockedEventWindow is the dedupe window of the event that nothing is repaired.
	blockedEventWindow = 15 * time.Minute
	// StabilizationWindow is the stabilization window of a repair: the decision must hold for so long. When many nodes fail at
	// once, the reports of some arrive first, and the limit on unhealthy nodes must see them all.
	StabilizationWindow = 10 * time.Second
	// reason is the reason of the deletion in metrics; reasonUnhealthy is the one in conditions.
	reason, reasonUnhealthy = "unhealthy", "Unhealthy"
)

// Reconciler repairs Nodes.
type Reconciler struct {
	Client   client.Client
	Guard    *destroy.Guard
	Policies []cloudprovider.RepairPolicy
	Events   *event.Recorder
	Metrics  *metrics.Metrics
	Repairs  *Metrics
	Log      *slog.Logger
	Now      func() time.Time
	// Settle is StabilizationWindow in production.
	StabilizationWindow time.Duration

	mu sync.Mutex
	// decided is since when a node, by name, is due for repair.
	decided map[string]time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("node.health").
		For(
			&corev1.Node{},
			builder.WithPredicates(
				predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool { return conditionsChanged(e.ObjectOld, e.ObjectNew) }},
			),
		).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(destroy.Requeue(patch.RequeueOnConflict(r)))
}

// conditionFacts are the fields of a node condition on which a repair depends.
type conditionFacts struct {
	typ    corev1.NodeConditionType
	status corev1.ConditionStatus
	since  time.Time
}

// conditionsChanged reports whether two versions of a Node differ in what a repair depends on: kubelets write a
// heartbeat every few seconds.
func conditionsChanged(before, after client.Object) bool {
	facts := func(o client.Object) []conditionFacts {
		var out []conditionFacts
		if node, ok := o.(*corev1.Node); ok {
			for _, c := range node.Status.Conditions {
				out = append(out, conditionFacts{c.Type, c.Status, c.LastTransitionTime.Time.UTC()})
			}
		}
		return out
	}
	return !slices.Equal(facts(before), facts(after))
}

// Reconcile deletes the claim of a node that is unhealthy beyond toleration, or requeues it for the time when it would
// be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		r.resetDecision(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, managed := node.Labels[awsv1.LabelNodeClass]; !managed {
		return reconcile.Result{}, nil
	}
	claims, err := cluster.ClaimsOf(ctx, r.Client, node.Spec.ProviderID)
	if err != nil || len(claims) != 1 {
		return reconcile.Result{}, err
	}
	claim := &claims[0]
	unhealthy, due, found := diagnose(node, r.Policies)
	if !found || !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
		r.resetDecision(node.Name)
		return reconcile.Result{}, nil
	}
	if wait := due.Sub(r.Now()); wait > 0 {
		r.resetDecision(node.Name)
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	scope := blastradius.PoolOf(claim)
	count, err := r.count(ctx, scope)
	if err != nil {
		return reconcile.Result{}, err
	}
	if count.Blocked() {
		r.resetDecision(node.Name)
		r.reportBlocked(ctx, node, claim, count)
		return reconcile.Result{RequeueAfter: blockedRecheckInterval}, nil
	}
	if wait := r.settling(node.Name); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(r.repair(ctx, node, claim, unhealthy))
}

// settling records that a node is due for repair, and returns for how long the decision must still hold.
func (r *Reconciler) settling(node string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Now()
	since, noted := r.decided[node]
	if !noted {
		if r.decided == nil {
			r.decided = map[string]time.Time{}
		}
		r.decided[node], since = now, now
	}
	return since.Add(r.StabilizationWindow).Sub(now)
}

func (r *Reconciler) resetDecision(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.decided, node)
}

// diagnose returns the condition of a node that is the first to require its repair, and when.
func diagnose(node *corev1.Node, policies []cloudprovider.RepairPolicy) (unhealthy corev1.NodeCondition, due time.Time, found bool) {
	for _, c := range node.Status.Conditions {
		for _, p := range policies {
			if c.Type != p.Type || c.Status != p.Status {
				continue
			}
			if at := c.LastTransitionTime.Add(p.Toleration); !found || at.Before(due) {
				unhealthy, due, found = c, at, true
			}
		}
	}
	return unhealthy, due, found
}

// count counts the nodes of a scope: when many fail at once, their replacements likely fail for the same cause.
func (r *Reconciler) count(ctx context.Context, scope blastradius.Scope) (blastradius.Count, error) {
	var count blastradius.Count
	var opts []client.ListOption
	if scope.NodePool != "" {
		opts = append(opts, client.MatchingLabels{karpv1.LabelNodePool: scope.NodePool})
	}
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return count, err
	}
	count.Total = len(nodes.Items)
	for i := range nodes.Items {
		if _, _, unhealthy := diagnose(&nodes.Items[i], r.Policies); unhealthy {
			count.Unhealthy++
		}
	}
	return count, nil
}

// reportBlocked records on node, claim and pool that nothing is repaired.
func (r *Reconciler) reportBlocked(ctx context.Context, node *corev1.Node, claim *karpv1.NodeClaim, count blastradius.Count) {
	scope := blastradius.PoolOf(claim)
	objects := []event.Object{node, claim}
	if scope.NodePool != "" {
		pool := &karpv1.NodePool{}
		if r.Client.Get(ctx, client.ObjectKey{Name: scope.NodePool}, pool) == nil {
			objects = append(objects, pool)
		}
	}
	for _, o := range objects {
		r.Events.WarnEvery(blockedEventWindow, o, blastradius.EventBlocked, "more than %d%% nodes are unhealthy in the %s",
			blastradius.UnhealthyPercent, scope.Kind())
	}
	r.Log.Warn("unhealthy node is not repaired, too many others are unhealthy", "Node", node.Name, "NodePool", scope.NodePool,
		"unhealthy", count.Unhealthy, "nodes", count.Total)
}

// repair deletes the claim, without a grace period for its pods: the kubelet of a node unhealthy for so long does not
// stop them.
func (r *Reconciler) repair(ctx context.Context, node *corev1.Node, claim *karpv1.NodeClaim, unhealthy corev1.NodeCondition) error {
	if claim.DeletionTimestamp == nil {
		// A node that recovers while deletions are paused must not keep a deadline of the past.
		if err := r.Guard.MayDelete(ctx, claim, destroy.Fault); err != nil {
			return err
		}
	}
	now := r.Now()
	if !expired(claim, now) {
		before := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationTerminationTimestamp, now.UTC().Format(time.RFC3339))
		if _, err := patch.ObjectFrom(ctx, r.Client, before, claim); err != nil {
			return err
		}
	}
	if claim.DeletionTimestamp != nil {
		return nil
	}
	before := claim.DeepCopy()
	if condition.SetTrueWithReason(claim, karpv1.ConditionDisruptionReason, condition.Because(reasonUnhealthy, reasonUnhealthy), now) {
		if _, err := patch.StatusFrom(ctx, r.Client, before, claim); err != nil {
			return err
		}
	}
	pods := cluster.Reschedulable(ctx, r.Client, node.Name)
	if err := r.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Fault, Reason: reasonUnhealthy, Unchanged: true}); err != nil {
		return err
	}
	r.Log.Info(
		"deleting unhealthy node",
		"Node",
		node.Name,
		"NodeClaim",
		claim.Name,
		"provider-id",
		claim.Status.ProviderID,
		"condition",
		string(unhealthy.Type),
		"status",
		string(unhealthy.Status),
		"since",
		unhealthy.LastTransitionTime.UTC().Format(time.RFC3339),
		"reason",
		unhealthy.Reason,
	)
	for _, o := range []event.Object{node, claim} {
		r.Events.Warn(
			o,
			"NodeRepaired",
			"Replacing Node %s: %s is %s since %s (%s)",
			node.Name,
			unhealthy.Type,
			unhealthy.Status,
			unhealthy.LastTransitionTime.UTC().Format(time.RFC3339),
			unhealthy.Reason,
		)
	}
	r.Metrics.Disrupted(claim, reason)
	r.Metrics.PodsDisrupted(claim, reason, pods)
	r.Repairs.Unhealthy.WithLabelValues(
		metrics.Snake(string(unhealthy.Type)),
		claim.Labels[karpv1.LabelNodePool],
		claim.Labels[karpv1.LabelCapacityType],
		claim.Status.ImageID,
		metrics.TerminationMode(claim),
	).Inc()
	return nil
}

// expired reports whether the claim's termination deadline has passed.
func expired(claim *karpv1.NodeClaim, now time.Time) bool {
	at, err := claim.TerminationDeadline()
	return err == nil && at != nil && at.Before(now)
}
