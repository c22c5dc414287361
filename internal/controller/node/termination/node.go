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
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

const (
	// poll is how often a drain or a volume is looked after.
	poll = time.Second
	// observed is how long a write takes, at most, to come back through the watch in a healthy cluster.
	observed = 200 * time.Millisecond
	// minDrain leaves a scheduler that has not seen the taint yet the time to bind its last pod.
	minDrain = 5 * time.Second
)

// instances tells whether an instance still exists, and ends it.
type instances interface {
	Get(ctx context.Context, providerID string) (cloudprovider.Instance, error)
	Terminate(ctx context.Context, providerID string) error
}

// NodeReconciler takes deleted Nodes of ours apart in order.
type NodeReconciler struct {
	Client  client.Client
	Cloud   instances
	Evictor *Evictor
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// Register adds the reconciler to mgr.
func (r *NodeReconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("node.termination").
		For(&corev1.Node{}).
		WithOptions(r.options()).
		Complete(patch.Retry(r))
}

// options have a node whose end has met with a failure looked at again soon: its deadline does not wait.
func (r *NodeReconciler) options() controller.Options {
	return eventfilter.Options(100, 100*time.Millisecond, 10*time.Second)
}

// step is one stage of a node's end. It returns how long to wait before it is asked again; zero when it is done.
type step func(ctx context.Context, e *ending) (wait time.Duration, err error)

// ending is a node on its way out.
type ending struct {
	node *corev1.Node
	// claim is nil when the node has none, or more than one.
	claim    *karpv1.NodeClaim
	deadline *time.Time
	pods     []*corev1.Pod
	// gone is true once the instance is known not to run any more.
	gone bool
}

// overdue reports whether the time that the node had is over.
func (e *ending) overdue(now time.Time) bool { return e.deadline != nil && now.After(*e.deadline) }

// Reconcile takes the node as far as it goes now.
func (r *NodeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, managed := node.Labels[awsv1.LabelNodeClass]; !managed || node.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(node, karpv1.FinalizerTermination) {
		return reconcile.Result{}, nil
	}
	e, err := r.observe(ctx, node)
	if err != nil {
		return reconcile.Result{}, err
	}
	if e.claim != nil && e.claim.DeletionTimestamp == nil {
		if err := r.Client.Delete(ctx, e.claim, client.Preconditions{UID: &e.claim.UID}); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
	}
	dead, err := r.dead(ctx, e)
	if err != nil {
		return reconcile.Result{}, err
	}
	e.gone = dead
	if !dead {
		wait, err := r.proceed(ctx, e)
		if wait > 0 || err != nil {
			return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
		}
	}
	if e.gone {
		if wait, err := r.abandon(ctx, e); wait > 0 || err != nil {
			return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
		}
	}
	return reconcile.Result{}, client.IgnoreNotFound(r.release(ctx, e))
}

// observe reads all that the decisions below depend on.
func (r *NodeReconciler) observe(ctx context.Context, node *corev1.Node) (*ending, error) {
	e := &ending{node: node}
	claims, err := cluster.ClaimsOf(ctx, r.Client, node.Spec.ProviderID)
	if err != nil {
		return nil, err
	}
	if len(claims) == 1 {
		e.claim = &claims[0]
		deadline, err := e.claim.TerminationDeadline()
		if err != nil {
			for _, o := range []event.Object{node, e.claim} {
				r.Events.Warn(o, invalidDeadline, "The %v", err)
			}
		}
		if e.deadline = deadline; deadline != nil {
			r.Events.Warn(node, "TerminationGracePeriodExpiring", "All pods will be deleted by %s",
				e.claim.Annotations[karpv1.AnnotationTerminationTimestamp])
		}
	}
	e.pods, err = cluster.PodsOn(ctx, r.Client, node.Name)
	return e, err
}

// dead reports whether nothing is left to drain: the kubelet is silent and the instance is gone.
func (r *NodeReconciler) dead(ctx context.Context, e *ending) (bool, error) {
	if cluster.NodeReady(e.node) {
		return false, nil
	}
	_, err := r.Cloud.Get(ctx, e.node.Spec.ProviderID)
	if errors.Is(err, cloudprovider.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// proceed runs the steps in order and stops at the first that is not done. What they found out about the
// claim is written once, at the end.
func (r *NodeReconciler) proceed(ctx context.Context, e *ending) (wait time.Duration, err error) {
	if written, err := r.closeNode(ctx, e); written || err != nil {
		// Nobody is asked to go before the taint has come back through the watch: who looks at the pods before that may
		// miss one that is being bound.
		return observed, err
	}
	var before *karpv1.NodeClaim
	if e.claim != nil {
		before = e.claim.DeepCopy()
	}
	for _, s := range []step{r.drain, r.detach, r.retire, r.terminate} {
		if wait, err = s(ctx, e); wait > 0 || err != nil {
			break
		}
	}
	if e.claim != nil && !equality.Semantic.DeepEqual(before.Status, e.claim.Status) {
		patchErr := r.Client.Status().Patch(ctx, e.claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsNotFound(patchErr) {
			return wait, err // the claim was let go by force; the node is where it is all the same
		}
		if patchErr != nil {
			return 0, errors.Join(err, patchErr)
		}
		if !condition.IsTrue(before, karpv1.ConditionDrained) && condition.IsTrue(e.claim, karpv1.ConditionDrained) {
			r.Metrics.NodesDrained.WithLabelValues(e.node.Labels[karpv1.LabelNodePool]).Inc()
		}
	}
	return wait, err
}

// closeNode keeps new pods and load balancers away from the node, and reports whether it had to.
func (r *NodeReconciler) closeNode(ctx context.Context, e *ending) (bool, error) {
	before := e.node.DeepCopy()
	taint := corev1.Taint{Key: karpv1.TaintKeyDisrupted, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(e.node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		e.node.Spec.Taints = slices.DeleteFunc(e.node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
		e.node.Spec.Taints = append(e.node.Spec.Taints, taint)
	} else if e.node.Labels[corev1.LabelNodeExcludeBalancers] != "" {
		return false, nil
	}
	metav1.SetMetaDataLabel(&e.node.ObjectMeta, corev1.LabelNodeExcludeBalancers, "karpenter")
	if err := r.Client.Patch(ctx, e.node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, err
	}
	r.Log.Info("tainted node", "Node", e.node.Name, "taint.Key", taint.Key, "taint.Value", taint.Value, "taint.Effect", taint.Effect)
	return true, nil
}

// drain drives the pods off, tier by tier, except the daemons that the others need to end well.
func (r *NodeReconciler) drain(_ context.Context, e *ending) (time.Duration, error) {
	now := r.Now()
	if e.claim != nil {
		if _, started := condition.Get(e.claim, karpv1.ConditionDrained); !started {
			condition.SetUnknown(e.claim, karpv1.ConditionDrained, "Draining", "", now)
		}
	}
	pods, _ := split(e.pods)
	if left := r.drive(e, pods, now); left > 0 {
		r.tellLeft(e.node, left)
		return poll, nil
	}
	if e.claim == nil {
		return 0, nil
	}
	if c, _ := condition.Get(e.claim, karpv1.ConditionDrained); c.Status != metav1.ConditionTrue {
		if now.Sub(c.LastTransitionTime.Time) < minDrain {
			return poll, nil
		}
		condition.SetTrue(e.claim, karpv1.ConditionDrained, now)
	}
	return 0, nil
}

// drive asks those of the pods to go whose turn it is, and returns how many are still there.
func (r *NodeReconciler) drive(e *ending, pods []*corev1.Pod, now time.Time) int {
	d := nextDrain(pods, e.deadline, now)
	if reclaimed(e.claim) {
		d = hurry(d, pods, now)
	}
	reason := "Forceful Termination"
	if e.claim != nil {
		if c, ok := condition.Get(e.claim, karpv1.ConditionDisruptionReason); ok && c.Status == metav1.ConditionTrue {
			reason = c.Reason
		}
	}
	for _, pods := range [][]*corev1.Pod{d.Force, d.Evict} {
		for _, pod := range pods {
			r.Evictor.Ask(pod, e.node, reason, e.deadline)
		}
	}
	return d.Left
}

func (r *NodeReconciler) tellLeft(node *corev1.Node, left int) {
	r.Events.Warn(node, "FailedDraining", "Failed to drain node, %d pods are waiting to be evicted", left)
}

// detach waits until the volumes of drained pods have left the node, or its deadline has passed.
func (r *NodeReconciler) detach(ctx context.Context, e *ending) (time.Duration, error) {
	blocking, err := r.blockingAttachments(ctx, e)
	if err != nil {
		return 0, err
	}
	now := r.Now()
	if len(blocking) == 0 {
		if e.claim != nil {
			condition.SetTrue(e.claim, karpv1.ConditionVolumesDetached, now)
		}
		return 0, nil
	}
	holders, err := r.holders(ctx, e, blocking)
	if err != nil {
		return 0, err
	}
	names := make([]string, len(blocking))
	for i, a := range blocking {
		names[i] = a.Name
	}
	if e.overdue(now) {
		if e.claim != nil {
			condition.SetFalse(e.claim, karpv1.ConditionVolumesDetached, "TerminationGracePeriodElapsed", "Volumes are still attached: "+strings.Join(holders, "; "), now)
		}
		return 0, nil
	}
	r.Events.Normal(e.node, "AwaitingVolumeDetachment", "Awaiting deletion of bound volumeattachments (%s): %s", strings.Join(names[:min(len(names), 5)], ", "), strings.Join(holders[:min(len(names), 5)], "; "))
	if e.claim != nil {
		condition.SetUnknown(e.claim, karpv1.ConditionVolumesDetached, "AwaitingVolumeDetachment", strings.Join(holders, "; "), now)
	}
	return poll, nil
}

// retire drives off the daemons that the others needed. With the node's time over, nothing waits for them.
func (r *NodeReconciler) retire(_ context.Context, e *ending) (time.Duration, error) {
	now := r.Now()
	_, last := split(e.pods)
	if left := r.drive(e, last, now); left > 0 && !e.overdue(now) {
		r.tellLeft(e.node, left)
		return poll, nil
	}
	return 0, nil
}

// terminate ends the instance and waits until it is gone.
func (r *NodeReconciler) terminate(ctx context.Context, e *ending) (time.Duration, error) {
	if e.claim == nil {
		return 0, nil
	}
	err := r.Cloud.Terminate(ctx, e.claim.Status.ProviderID)
	if errors.Is(err, cloudprovider.ErrNotFound) {
		e.gone = true
		return 0, nil
	}
	if err != nil {
		message := notEnded(e.claim, err, r.Now())
		r.Events.Warn(e.node, reasonNotEnded, "%s", message)
		r.Events.Warn(e.claim, reasonNotEnded, "%s", message)
		return 0, fmt.Errorf("terminate the instance of node %q: %w", e.node.Name, err)
	}
	condition.SetTrue(e.claim, karpv1.ConditionInstanceTerminating, r.Now())
	return instancePoll, nil
}

// release lets the Node object go.
func (r *NodeReconciler) release(ctx context.Context, e *ending) error {
	before := e.node.DeepCopy()
	controllerutil.RemoveFinalizer(e.node, karpv1.FinalizerTermination)
	if err := r.Client.Patch(ctx, e.node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	r.Log.Info("deleted node", "Node", e.node.Name)
	r.Metrics.NodesTerminated.WithLabelValues(e.node.Labels[karpv1.LabelNodePool], e.node.Labels[corev1.LabelTopologyZone]).Inc()
	return nil
}
