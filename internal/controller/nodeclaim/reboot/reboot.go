// Package reboot reboots instances with a fault that a reboot may clear: it fences and drains the node, calls EC2, and
// waits until the node has booted anew and is Ready. A node that does not come back is replaced.
//
// Node repair decides which node to reboot, by the condition Rebooting of its NodeClaim. All state is on the NodeClaim,
// so any process can go on. A reboot in progress finishes even if the feature gate is turned off.
package reboot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// The limits of the phases. Those of Karpenter are the first four.
const (
	// MinDrain gives a scheduler that has not seen the taint yet the time to bind its last pod.
	MinDrain = 5 * time.Second
	// poll sets how often a phase is looked at without a change of Node or NodeClaim.
	poll = 15 * time.Second
	// issueTimeout sets how long EC2 may refuse the call for reasons that may pass.
	issueTimeout = 5 * time.Minute
	// recoveryTimeout sets how long an instance may take to boot and become Ready; metal instances, which test their
	// hardware first, may take metalRecoveryTimeout.
	recoveryTimeout = 20 * time.Minute
	// outcomeWait sets how long a call with an unknown outcome may take to show as a new boot before EC2 is called again:
	// EC2 has no token that would keep a second call from rebooting an instance that has just come back.
	outcomeWait          = 2 * time.Minute
	metalRecoveryTimeout = 45 * time.Minute
	// MaxDrain stops a drain that nothing else bounds. Karpenter waits forever, and the node holds a slot of its budget.
	MaxDrain = time.Hour
	// eventWindow is the dedupe window of the events on a reboot. It is Karpenter's.
	eventWindow = 30 * time.Minute
)

// Results of reboots in metrics.
const (
	resultSucceeded      = "succeeded"
	resultProviderError  = "provider_error"
	resultTimeout        = "recovery_timeout"
	resultInvalidRequest = "invalid_request"
)

// rebooter reboots instances. The error is cloudprovider.ErrNotFound if the instance is gone, and
// cloudprovider.ErrRebootRefused if a repetition is pointless.
type rebooter interface {
	Reboot(ctx context.Context, permit destroy.Permit) error
	// Away reports whether the cluster is shifted away from the instance's zone: nothing is rebooted there.
	Away(providerID string) bool
}

// evictor evicts pods until a deadline, after which it leaves those that are left.
type evictor interface {
	RequestUntil(pod *corev1.Pod, node *corev1.Node, reason string, until time.Time)
	// Next returns the pods of the tier that leaves now, and how many the node still waits for.
	Next(pods []*corev1.Pod) (evict []*corev1.Pod, waiting int)
}

// Reconciler takes reboots through their phases.
type Reconciler struct {
	Client client.Client
	Guard  *destroy.Guard
	// Live reads from the API server.
	Live    client.Reader
	Cloud   rebooter
	Evictor evictor
	Events  *event.Recorder
	Metrics *Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.reboot").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(eventfilter.Claims(rebooting))).
		Watches(
			&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequestsWhere(mgr.GetClient(), rebooting)),
			builder.WithPredicates(eventfilter.IgnoreHeartbeats()),
		).
		WithOptions(eventfilter.BackoffOptions(10, time.Second, time.Minute)).
		Complete(destroy.Requeue(patch.RequeueOnConflict(r)))
}

// attempt is a reboot in progress.
type attempt struct {
	claim  *karpv1.NodeClaim
	node   *corev1.Node // nil while there is none
	record karpv1.RebootRecord
	// drainBound is the bound of the drain, nil if the request has none.
	drainBound *time.Duration
	requested  time.Time
	issued     bool
}

func rebooting(claim *karpv1.NodeClaim) bool {
	return claim.DeletionTimestamp == nil && condition.IsTrue(claim, karpv1.ConditionRebooting)
}

// Reconcile takes the reboot of a claim one phase further.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil || !rebooting(claim) {
		return reconcile.Result{}, err
	}
	a := &attempt{claim: claim}
	if a.record, err = claim.Reboots(); err == nil {
		a.drainBound, err = claim.RebootDrainBound()
	}
	if err == nil && len(a.record.Started) == 0 {
		err = fmt.Errorf("annotation %s of node claim %q is missing", karpv1.AnnotationReboot, claim.Name)
	}
	if err != nil { // nobody knows what was requested, so the node stays
		return reconcile.Result{}, r.end(ctx, a, resultInvalidRequest, err.Error())
	}
	a.requested = a.record.Started[len(a.record.Started)-1].Time
	c, _ := condition.Get(claim, karpv1.ConditionRebooting)
	a.issued = c.Reason == karpv1.RebootIssued
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(nodes) == 1 {
		a.node = &nodes[0]
	}
	wait, err := r.advance(ctx, a)
	return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
}

// advance runs the phase that the attempt is in.
func (r *Reconciler) advance(ctx context.Context, a *attempt) (time.Duration, error) {
	switch {
	case a.issued:
		return r.observe(ctx, a)
	case a.node == nil:
		if r.Now().After(a.requested.Add(issueTimeout)) {
			return 0, r.fail(ctx, a, resultTimeout, "its Node is gone")
		}
		return poll, nil
	}
	before := a.claim.Annotations[karpv1.AnnotationRebootPreBootID]
	if a.record.IssueBy != nil && before != a.node.Status.NodeInfo.BootID {
		return 0, r.markIssued(ctx, a) // an earlier process has called EC2
	}
	if at := a.record.CalledAt; r.Cloud.Away(a.claim.Status.ProviderID) && (at == nil || !r.Now().Before(at.Add(outcomeWait))) {
		return 0, r.abandon(ctx, a)
	}
	if err := r.setFence(ctx, a.node.Name, true /* present */); err != nil {
		return 0, err
	}
	if wait, err := r.drain(ctx, a); wait > 0 || err != nil {
		return wait, err
	}
	return r.issue(ctx, a)
}

// drain evicts the pods of the node, and returns how long to wait for them; zero once the node is empty or the drain has
// lasted long enough. Pods that are left then ride along.
func (r *Reconciler) drain(ctx context.Context, a *attempt) (time.Duration, error) {
	if a.drainBound != nil && *a.drainBound == 0 {
		return 0, nil
	}
	now := r.Now()
	left := a.record.DrainBy.Sub(now)
	if left <= 0 {
		return 0, nil
	}
	pods, err := cluster.PodsOn(ctx, r.Client, a.node.Name)
	if err != nil {
		return 0, err
	}
	evict, waiting := r.Evictor.Next(pods)
	for _, pod := range evict {
		r.Evictor.RequestUntil(pod, a.node, string(karpv1.DisruptionUnhealthy), a.record.DrainBy.Time)
	}
	if settle := a.requested.Add(MinDrain).Sub(now); waiting == 0 {
		return max(settle, 0), nil
	}
	return min(poll, left), nil
}

// issue calls EC2, unless an earlier call may still show its effect. The boot ID that is recorded first shows a later
// process whether a call took effect.
func (r *Reconciler) issue(ctx context.Context, a *attempt) (time.Duration, error) {
	now := r.Now()
	if at := a.record.CalledAt; at != nil && now.Before(at.Add(outcomeWait)) {
		return min(poll, at.Add(outcomeWait).Sub(now)), nil
	}
	permit, err := r.Guard.ForReboot(ctx, a.claim)
	if err != nil {
		return 0, err
	}
	if err := r.recordCall(ctx, a, now); err != nil {
		return 0, err
	}
	err = r.Cloud.Reboot(ctx, permit)
	switch {
	case err == nil:
		return poll, r.markIssued(ctx, a)
	case errors.Is(err, cloudprovider.ErrRebootRefused), errors.Is(err, cloudprovider.ErrNotFound), r.Now().After(a.record.IssueBy.Time):
		return 0, r.fail(ctx, a, resultProviderError, err.Error())
	case errors.Is(err, cloudprovider.ErrOutcomeUnknown):
		r.Log.Warn("reboot may or may not have begun", "NodeClaim", a.claim.Name, "error", err)
		return poll, nil
	}
	a.record.CalledAt = nil
	return 0, errors.Join(err, r.write(ctx, a, func(c *karpv1.NodeClaim) error { return c.SetReboots(&a.record) }))
}

// recordCall records before a call to EC2 when it is made, the boot that it is to end, and when the attempts end. It
// fails with a conflict if the record shows a call that the cache did not: that call may be having its effect.
func (r *Reconciler) recordCall(ctx context.Context, a *attempt, now time.Time) error {
	known, at := a.record.CalledAt, metav1.NewTime(now)
	a.record.CalledAt = &at
	if a.record.IssueBy == nil {
		by := metav1.NewTime(now.Add(issueTimeout))
		a.record.IssueBy = &by
	}
	return r.write(ctx, a, func(c *karpv1.NodeClaim) error {
		if recorded, err := c.Reboots(); err != nil || !recorded.CalledAt.Equal(known) {
			stale := errors.New("EC2 was called meanwhile")
			return errors.Join(err, apierrors.NewConflict(schema.GroupResource{Resource: "nodeclaims"}, c.Name, stale))
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationRebootPreBootID, a.node.Status.NodeInfo.BootID)
		return c.SetReboots(&a.record)
	})
}

// markIssued records that EC2 reboots the instance: the node is no longer initialized.
func (r *Reconciler) markIssued(ctx context.Context, a *attempt) error {
	now := r.Now()
	by := metav1.NewTime(now.Add(recoveryLimit(a.claim)))
	a.record.RecoverBy = &by
	if err := r.write(ctx, a, func(c *karpv1.NodeClaim) error { return c.SetReboots(&a.record) }); err != nil {
		return err
	}
	err := patch.StatusWithRetry(ctx, r.clients(), a.claim, func(c *karpv1.NodeClaim) error {
		condition.SetTrueWithReason(c, karpv1.ConditionRebooting, condition.Because(karpv1.RebootIssued, "EC2 reboots the instance"), now)
		condition.SetUnknown(c, karpv1.ConditionInitialized, condition.Because(karpv1.ConditionRebooting, "the instance reboots"), now)
		return nil
	})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node.Name}}
	return patch.ObjectWithRetry(ctx, r.clients(), node, func(n *corev1.Node) error {
		delete(n.Labels, karpv1.LabelInitialized)
		return nil
	})
}

// recoveryLimit returns how long the instance may take to come back.
func recoveryLimit(claim *karpv1.NodeClaim) time.Duration {
	if strings.Contains(claim.Labels[corev1.LabelInstanceTypeStable], ".metal") {
		return metalRecoveryTimeout
	}
	return recoveryTimeout
}
