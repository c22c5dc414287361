// Package drift sets the condition Drifted on NodeClaims that differ from what their NodePool and node class would
// launch now. It deletes nothing: the disruption controller replaces drifted nodes, within budgets.
package drift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

const (
	// recheckInterval is the time between two checks of a claim when none of its objects changes: AMIs, subnets and
	// offerings change without an event.
	recheckInterval = 5 * time.Minute
	// resizeRecheckInterval is that of a claim which has drifted since a pod waits for room: once another pod leaves, nothing is replaced.
	resizeRecheckInterval = 20 * time.Second
	// offeredMinAge is the age at which the check of a claim's instance type begins: it was offered when the claim
	// launched.
	offeredMinAge = time.Hour
	// offeredTTL sets how long a found instance type needs no further check. AWS withdraws types from a zone rarely, and
	// each check evaluates the whole catalog.
	offeredTTL = 30 * time.Minute
)

// provider compares instances with their node class and lists what can be launched.
type provider interface {
	// Drift returns why the instance differs from its node class; empty if it does not. With an error nothing is known.
	Drift(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (reason string, err error)
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Reconciler keeps the condition Drifted.
type Reconciler struct {
	Client client.Client
	Cloud  provider
	Labels requirement.Labels
	Log    *slog.Logger
	Now    func() time.Time

	mu sync.Mutex
	// offered is the time when the instance type of a claim was last found in the catalog.
	offered map[types.UID]time.Time
	// resizes are the pods that nodes were marked for. A restart forgets them: pods wait for the shortest time again.
	resizes disrupt.ResizeHistory
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.drift").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(predicate.Or(eventfilter.IgnoreStatusUpdates(), statusMatters()))).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, pool client.Object) []reconcile.Request {
			return r.requests(ctx, func(c *karpv1.NodeClaim) bool { return c.Labels[karpv1.LabelNodePool] == pool.GetName() })
		}), builder.WithPredicates(eventfilter.IgnoreStatusUpdates())).
		Watches(&awsv1.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, class client.Object) []reconcile.Request {
			return r.requests(ctx, func(c *karpv1.NodeClaim) bool {
				return awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) && c.Spec.NodeClassRef.Name == class.GetName()
			})
		})).
		WithOptions(eventfilter.BackoffOptions(10, time.Second, time.Minute)).
		Complete(patch.RequeueOnConflict(r))
}

// statusMatters accepts an update of a claim's status on which its drift depends, or which removes what this controller has written.
func statusMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*karpv1.NodeClaim), e.ObjectNew.(*karpv1.NodeClaim)
		same := func(kind string) bool {
			was, _ := condition.Get(before, kind)
			is, _ := condition.Get(after, kind)
			return was.Status == is.Status && was.Reason == is.Reason
		}
		return before.Status.ProviderID != after.Status.ProviderID || before.Status.ImageID != after.Status.ImageID ||
			!same(karpv1.ConditionLaunched) || !same(karpv1.ConditionDrifted)
	}}
}

// requests returns a request for each claim that match accepts.
func (r *Reconciler) requests(ctx context.Context, match func(*karpv1.NodeClaim) bool) []reconcile.Request {
	var claims karpv1.NodeClaimList
	if err := r.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("listing node claims", "error", err)
		return nil
	}
	var out []reconcile.Request
	for i := range claims.Items {
		if match(&claims.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: claims.Items[i].Name}})
		}
	}
	return out
}

// Reconcile sets or removes the condition Drifted.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.SharedOwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	name := claim.Labels[karpv1.LabelNodePool]
	if claim.DeletionTimestamp != nil || name == "" {
		r.forget(claim.UID)
		return reconcile.Result{}, nil
	}
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !condition.IsTrue(claim, karpv1.ConditionLaunched) {
		return reconcile.Result{}, r.setDrifted(ctx, claim, condition.Cause{})
	}
	reason, err := r.driftReason(ctx, claim, pool)
	message, again := reason, recheckInterval
	if err == nil && reason == "" {
		reason, message, again, err = r.resizeDeferred(ctx, claim, pool)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("check node claim %q for drift: %w", claim.Name, err)
	}
	return reconcile.Result{RequeueAfter: again}, r.setDrifted(ctx, claim, condition.Because(reason, message))
}

// driftReason returns why the claim has drifted, the cheapest checks first; empty if it has not.
func (r *Reconciler) driftReason(ctx context.Context, claim *karpv1.NodeClaim, pool *karpv1.NodePool) (string, error) {
	if reason, err := disrupt.DriftReason(claim, pool, r.Labels); reason != "" || err != nil {
		return reason, err
	}
	class := &awsv1.EC2NodeClass{}
	key := client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}
	if err := r.Client.Get(ctx, key, class, client.UnsafeDisableDeepCopy); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if offered, err := r.typeOffered(ctx, claim, class); err != nil || !offered {
		return disrupt.InstanceTypeNotFound, err
	}
	reason, err := r.Cloud.Drift(ctx, class, claim)
	if errors.Is(err, cloudprovider.ErrNotFound) { // garbage collection deletes claims without an instance
		return "", nil
	}
	return reason, err
}

// resizeDeferred returns the reason to replace a node that has no room for the resize of one of its pods, if its NodePool wants that, and
// when to check again.
func (r *Reconciler) resizeDeferred(
	ctx context.Context, claim *karpv1.NodeClaim, pool *karpv1.NodePool,
) (reason, message string, again time.Duration, err error) {
	after, err := pool.ReplaceDeferredResize()
	if err != nil || after == 0 || claim.Status.NodeName == "" || pool.Spec.Replicas != nil {
		return "", "", recheckInterval, nil // an invalid annotation is an event of the pool; a static pool would launch the same again
	}
	pods, err := cluster.SharedPodsOn(ctx, r.Client, claim.Status.NodeName)
	if err != nil {
		return "", "", 0, err
	}
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, since, due := r.resizes.Next(pods, after, now)
	if pod == nil {
		return "", "", recheckInterval, nil
	}
	if left := due.Sub(now); left > 0 {
		return "", "", min(left, recheckInterval), nil
	}
	r.resizes.Note(pod, now)
	message = fmt.Sprintf("The node has no room for the resize of pod %s/%s, which waits since %s", pod.Namespace, pod.Name,
		since.UTC().Format(time.RFC3339))
	return disrupt.ResizeDeferred, message, resizeRecheckInterval, nil
}

// typeOffered reports whether the node class still offers what the claim has launched.
func (r *Reconciler) typeOffered(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) (bool, error) {
	if !condition.IsReady(class) { // its offerings are unknown, which is no reason to replace nodes
		return true, nil
	}
	now := r.Now()
	r.mu.Lock()
	recent := now.Sub(r.offered[claim.UID]) < offeredTTL
	r.mu.Unlock()
	if recent || now.Sub(claim.CreationTimestamp.Time) <= offeredMinAge {
		return true, nil
	}
	all, err := r.Cloud.InstanceTypes(ctx, class)
	if err != nil {
		return false, err
	}
	if !disrupt.StillOffered(
		claim,
		all,
		r.Labels,
		awsv1.LabelReservationID,
		awsv1.LabelReservationType,
		awsv1.LabelReservationInterruptible,
	) {
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.offered == nil {
		r.offered = map[types.UID]time.Time{}
	}
	r.offered[claim.UID] = now
	return true, nil
}

func (r *Reconciler) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.offered, uid)
}

// setDrifted writes the condition with its cause, or removes it if the reason is empty. It does not change before.
func (r *Reconciler) setDrifted(ctx context.Context, before *karpv1.NodeClaim, cause condition.Cause) error {
	reason := cause.Reason
	if _, has := condition.Get(before, karpv1.ConditionDrifted); reason == "" && !has {
		return nil
	}
	claim, changed := before.DeepCopy(), false
	if reason == "" {
		changed = condition.Clear(claim, karpv1.ConditionDrifted, r.Now())
	} else {
		changed = condition.SetTrueWithReason(claim, karpv1.ConditionDrifted, cause, r.Now())
	}
	if !changed {
		return nil
	}
	if reason != "" {
		r.Log.Debug("marking drifted", "NodeClaim", claim.Name, "Node", claim.Status.NodeName, "reason", reason)
	}
	_, err := patch.StatusFrom(ctx, r.Client, before, claim)
	return client.IgnoreNotFound(err)
}
