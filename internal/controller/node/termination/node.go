package termination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/pace"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
)

const (
	// poll is the time between two checks of a drain or a volume.
	poll = time.Second
	// watchDelay sets how long a write takes, at most, to arrive through the watch in a healthy cluster.
	watchDelay = 200 * time.Millisecond
)

// instances reads and terminates instances.
type instances interface {
	Get(ctx context.Context, providerID string) (cloudprovider.Instance, error)
	Terminate(ctx context.Context, permit destroy.Permit) error
}

// NodeReconciler drains and terminates deleted Nodes of ours.
type NodeReconciler struct {
	Client  client.Client
	Guard   *destroy.Guard
	Cloud   instances
	Evictor *Evictor
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// LifecycleConditions publishes the drain on the Node: the feature gate NodeLifecycleConditions.
	LifecycleConditions bool
	// Pace divides the time between two calls for a terminating instance.
	Pace pace.Pace

	refused refusedWrites // of the conditions
}

// Register adds the reconciler to mgr.
func (r *NodeReconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("node.termination").
		For(&corev1.Node{}, builder.WithPredicates(eventfilter.Deleting(), eventfilter.IgnoreHeartbeats())).
		WithOptions(r.options()).
		Complete(destroy.Requeue(patch.RequeueOnConflict(r)))
}

// options retry a failed termination soon: the node's deadline does not wait.
func (r *NodeReconciler) options() controller.Options {
	return eventfilter.BackoffOptions(concurrency, 100*time.Millisecond, 10*time.Second)
}

// reasonNodeDeleted is the reason, in the audit, of a claim that goes with its node.
const reasonNodeDeleted = "its Node was deleted"

// step is one stage of a node's termination. It returns when to run it again; zero when it is done.
type step func(ctx context.Context, t *termination) (wait time.Duration, err error)

// termination describes what is known of a node that is being terminated.
type termination struct {
	node *corev1.Node
	// claim is nil when the node has none, or more than one.
	claim    *karpv1.NodeClaim
	deadline *time.Time
	pods     []*corev1.Pod
	order    drain.Order
	volumes  drain.Volumes
	// gone is true once the instance is known to have stopped.
	gone bool
}

// next is the next step of the node's drain.
func (t *termination) next(now time.Time) drain.Step {
	n := drain.Of(t.claim, t.pods, now)
	n.Volumes, n.Order = t.volumes, t.order
	return drain.Next(n, now)
}

// Reconcile takes the node's termination as far as possible now.
func (r *NodeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, managed := node.Labels[awsv1.LabelNodeClass]; !managed || node.DeletionTimestamp == nil ||
		!controllerutil.ContainsFinalizer(node, karpv1.FinalizerTermination) {
		return reconcile.Result{}, nil
	}
	t, err := r.observe(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if t.claim != nil && t.claim.DeletionTimestamp == nil {
		why := destroy.Why{Kind: destroy.Requested, Reason: reasonNodeDeleted}
		if err := r.Guard.NodeClaim(ctx, t.claim, why); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
	}
	if t.gone = r.instanceGone(ctx, t); !t.gone {
		if err := r.Guard.MayDrain(ctx, t.claim); err != nil {
			return reconcile.Result{}, err
		}
		wait, err := r.proceed(ctx, t)
		if wait > 0 || err != nil {
			return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
		}
	}
	if t.gone {
		if wait, err := r.forceDetach(ctx, t); wait > 0 || err != nil {
			return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
		}
	}
	return reconcile.Result{}, client.IgnoreNotFound(r.removeFinalizer(ctx, t))
}

// observe reads everything that the decisions below depend on.
func (r *NodeReconciler) observe(ctx context.Context, node *corev1.Node) (*termination, error) {
	t := &termination{node: node}
	claims, err := cluster.ClaimsOf(ctx, r.Client, node.Spec.ProviderID)
	if err != nil {
		return nil, err
	}
	if len(claims) == 1 {
		t.claim = &claims[0]
		deadline, err := t.claim.TerminationDeadline()
		if err != nil {
			for _, o := range []event.Object{node, t.claim} {
				r.Events.Warn(o, invalidDeadline, "The %v", err)
			}
		}
		if t.deadline = deadline; deadline != nil {
			r.Events.Warn(node, "TerminationGracePeriodExpiring", "All pods will be deleted by %s",
				t.claim.Annotations[karpv1.AnnotationTerminationTimestamp])
		}
	}
	if t.pods, err = cluster.PodsOn(ctx, r.Client, node.Name); err != nil {
		return nil, err
	}
	t.order, err = r.order(ctx, t)
	return t, err
}

// getTimeout sets how long a drain waits for the cloud to answer whether the instance exists. EC2 answers within a second.
const getTimeout = 5 * time.Second

// terminateTimeout sets how long one attempt to terminate may take: what the drain has found out is written after it. EC2 answers within
// two seconds, and the attempt is repeated.
const terminateTimeout = 15 * time.Second

// instanceGone reports whether nothing is left to drain: the kubelet does not report, and the instance certainly does not exist. A
// cloud that fails does not hold up the drain: the node is drained as if the instance ran.
func (r *NodeReconciler) instanceGone(ctx context.Context, t *termination) bool {
	if cluster.NodeReady(t.node) {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	_, err := r.Cloud.Get(limited, t.node.Spec.ProviderID)
	return errors.Is(err, cloudprovider.ErrNotFound)
}

// proceed runs the steps in order and stops at the first that is not done. It writes what they found out about the
// claim once, at the end.
func (r *NodeReconciler) proceed(ctx context.Context, t *termination) (wait time.Duration, err error) {
	if written, err := r.cordon(ctx, t); written || err != nil {
		// The taint must come back through the watch before the first eviction: a read of the pods before that may miss
		// one that is being bound.
		return watchDelay, err
	}
	var before *karpv1.NodeClaim
	if t.claim != nil {
		before = t.claim.DeepCopy()
	}
	for _, s := range []step{r.announceDrain, r.drain, r.awaitDetachment, r.drainDaemons, r.announceDrained, r.terminate} {
		if wait, err = s(ctx, t); wait > 0 || err != nil {
			break
		}
	}
	if t.claim != nil && !equality.Semantic.DeepEqual(before.Status, t.claim.Status) {
		_, patchErr := patch.StatusFrom(ctx, r.Client, before, t.claim)
		if apierrors.IsNotFound(patchErr) {
			return wait, err // somebody removed the claim's finalizer; the node remains
		}
		if patchErr != nil {
			return 0, errors.Join(err, patchErr)
		}
		if !condition.IsTrue(before, karpv1.ConditionDrained) && condition.IsTrue(t.claim, karpv1.ConditionDrained) {
			r.Metrics.NodesDrained.WithLabelValues(t.node.Labels[karpv1.LabelNodePool]).Inc()
		}
	}
	return wait, err
}

// cordon keeps new pods and load balancers away from the node, and reports whether it wrote the node.
func (r *NodeReconciler) cordon(ctx context.Context, t *termination) (bool, error) {
	before := t.node.DeepCopy()
	taint := corev1.Taint{Key: karpv1.TaintKeyDisrupted, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(t.node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		t.node.Spec.Taints = slices.DeleteFunc(t.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
		t.node.Spec.Taints = append(t.node.Spec.Taints, taint)
	} else if t.node.Labels[corev1.LabelNodeExcludeBalancers] != "" {
		return false, nil
	}
	metav1.SetMetaDataLabel(&t.node.ObjectMeta, corev1.LabelNodeExcludeBalancers, "karpenter")
	if _, err := patch.ObjectFrom(ctx, r.Client, before, t.node); err != nil {
		return false, err
	}
	r.Log.Info("tainted node", "Node", t.node.Name, "taint.Key", taint.Key, "taint.Value", taint.Value, "taint.Effect", taint.Effect)
	return true, nil
}

// drain evicts the pods, tier by tier, except the daemons that the others need for their shutdown.
func (r *NodeReconciler) drain(_ context.Context, t *termination) (time.Duration, error) {
	now := r.Now()
	if t.claim != nil {
		if _, started := condition.Get(t.claim, karpv1.ConditionDrained); !started {
			condition.SetUnknown(t.claim, karpv1.ConditionDrained, condition.Because("Draining", ""), now)
		}
	}
	step := t.next(now)
	switch step.Phase {
	case drain.Evicting:
		r.request(t, step)
		r.recordWaiting(t.node, len(step.Waits))
		return poll, nil
	case drain.Settling:
		return poll, nil
	}
	if t.claim != nil && !condition.IsTrue(t.claim, karpv1.ConditionDrained) {
		condition.SetTrue(t.claim, karpv1.ConditionDrained, now)
	}
	return 0, nil
}

// request requests that the pods of a step leave.
func (r *NodeReconciler) request(t *termination, step drain.Step) {
	cause := causeOf(t.claim)
	for _, pods := range [][]*corev1.Pod{step.Delete, step.Evict} {
		for _, pod := range pods {
			r.Evictor.Request(pod, t.node, cause, t.deadline)
		}
	}
}

// causeOf returns why the pods of a claim's node have to leave; the claim may be nil.
func causeOf(claim *karpv1.NodeClaim) Cause {
	out := Cause{Reason: "Forceful Termination", Kind: destroy.Requested}
	if claim == nil {
		return out
	}
	why := destroy.WhyOf(claim)
	out.Kind, out.Limited, out.Pool = why.Kind, why.Limited(), claim.Labels[karpv1.LabelNodePool]
	if c, ok := condition.Get(claim, karpv1.ConditionDisruptionReason); ok && c.Status == metav1.ConditionTrue {
		out.Reason = c.Reason
	}
	if command, found, err := claim.DisruptionCommand(); found && err == nil {
		out.Decision = command.ID
	}
	return out
}

// recordWaiting records the event about the pods that are still on the node.
func (r *NodeReconciler) recordWaiting(node *corev1.Node, waiting int) {
	r.Events.Warn(node, "FailedDraining", "Failed to drain node, %d pods are waiting to be evicted", waiting)
}

// awaitDetachment waits until the volumes of drained pods are detached, or the node's deadline has passed.
func (r *NodeReconciler) awaitDetachment(ctx context.Context, t *termination) (time.Duration, error) {
	blocking, err := r.blockingAttachments(ctx, t)
	if err != nil {
		return 0, err
	}
	now := r.Now()
	if t.volumes = drain.VolumesDetached; len(blocking) == 0 {
		if t.claim != nil {
			condition.SetTrue(t.claim, karpv1.ConditionVolumesDetached, now)
		}
		return 0, nil
	}
	holders, err := r.holders(ctx, t, blocking)
	if err != nil {
		return 0, err
	}
	names := make([]string, len(blocking))
	for i, a := range blocking {
		names[i] = a.Name
	}
	if t.volumes = drain.VolumesAttached; t.next(now).Phase != drain.Detaching {
		if t.claim != nil {
			condition.SetFalse(
				t.claim,
				karpv1.ConditionVolumesDetached,
				condition.Because("TerminationGracePeriodElapsed", "Volumes are still attached: "+strings.Join(holders, "; ")),
				now,
			)
		}
		return 0, nil
	}
	r.Events.Normal(
		t.node,
		"AwaitingVolumeDetachment",
		"Awaiting deletion of bound volumeattachments (%s): %s",
		strings.Join(names[:min(len(names), 5)], ", "),
		strings.Join(holders[:min(len(names), 5)], "; "),
	)
	if t.claim != nil {
		condition.SetUnknown(
			t.claim,
			karpv1.ConditionVolumesDetached,
			condition.Because("AwaitingVolumeDetachment", strings.Join(holders, "; ")),
			now,
		)
	}
	return poll, nil
}

// drainDaemons evicts the daemons that the other pods needed. It does not wait for them beyond the node's deadline.
func (r *NodeReconciler) drainDaemons(_ context.Context, t *termination) (time.Duration, error) {
	step := t.next(r.Now())
	r.request(t, step)
	if step.Phase == drain.Done {
		return 0, nil
	}
	r.recordWaiting(t.node, len(step.Waits))
	return poll, nil
}

// terminate terminates the instance and waits until it is gone.
func (r *NodeReconciler) terminate(ctx context.Context, t *termination) (time.Duration, error) {
	if t.claim == nil {
		return 0, nil
	}
	limited, cancel := context.WithTimeout(ctx, terminateTimeout)
	defer cancel()
	permit, err := r.Guard.OfClaim(limited, t.claim, t.claim.Status.ProviderID)
	if err == nil {
		err = r.Cloud.Terminate(limited, permit)
	}
	if errors.Is(err, cloudprovider.ErrNotFound) {
		t.gone = true
		return 0, nil
	}
	if err != nil {
		message := recordFailure(t.claim, err, r.Now())
		r.Events.Warn(t.node, reasonTerminationFailed, "%s", message)
		r.Events.Warn(t.claim, reasonTerminationFailed, "%s", message)
		return 0, fmt.Errorf("terminate the instance of node %q: %w", t.node.Name, err)
	}
	condition.SetTrue(t.claim, karpv1.ConditionInstanceTerminating, r.Now())
	return r.Pace.Of(instancePoll), nil
}

// removeFinalizer removes the Node's finalizer, with which the API server deletes the Node.
func (r *NodeReconciler) removeFinalizer(ctx context.Context, t *termination) error {
	before := t.node.DeepCopy()
	controllerutil.RemoveFinalizer(t.node, karpv1.FinalizerTermination)
	if _, err := patch.ObjectFrom(ctx, r.Client, before, t.node); err != nil {
		return err
	}
	r.Log.Info("deleted node", "Node", t.node.Name)
	pool := t.node.Labels[karpv1.LabelNodePool]
	r.Metrics.NodesTerminated.WithLabelValues(pool, t.node.Labels[corev1.LabelTopologyZone]).Inc()
	r.Metrics.NodeLifetime.WithLabelValues(pool).Observe(r.Now().Sub(before.CreationTimestamp.Time).Seconds())
	if before.DeletionTimestamp != nil {
		r.Metrics.NodeTermination.WithLabelValues(pool).Observe(r.Now().Sub(before.DeletionTimestamp.Time).Seconds())
	}
	return nil
}
