// Package launch gives each NodeClaim its instance.
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
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

// launcher buys the instance of a claim. Called again for the same claim it returns the same instance. It has enroll write
// down, before it buys, how the claim is launched.
// Terminate ends an instance and returns cloud.ErrNotFound when it is gone already.
type launcher interface {
	LaunchTogether(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, enroll func(ctx context.Context, mark string) error) (cloudprovider.Launched, error)
	Terminate(ctx context.Context, providerID string) error
}

// Reconciler launches NodeClaims. Killed between any two of its steps, the next run finds the instance
// that the last one bought.
type Reconciler struct {
	Client  client.Client
	Cloud   launcher
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time

	// launched remembers the claims whose launch is written down, until the cache shows it. A claim read
	// from before that needs nothing.
	launched sync.Map
	// pauses keep a launch that has failed from being repeated at once.
	pauses pauses
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.launch").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(wakes())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 100, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)}).
		Complete(patch.Retry(r))
}

// wakes lets a claim be looked at when its spec or metadata change, and when its launch is written down. That
// it could not be launched is written down too, and must not end the wait before the next attempt.
func wakes() predicate.Predicate {
	launched := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return condition.IsTrue(o.(*karpv1.NodeClaim), karpv1.ConditionLaunched)
	})
	return predicate.Or(eventfilter.IgnoreStatusUpdates(), launched)
}

// Reconcile takes one claim one step further: finalizer, instance, or failure.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if claim == nil {
		r.pauses.forget(req.Name)
		return reconcile.Result{}, nil
	}
	if condition.IsTrue(claim, karpv1.ConditionLaunched) {
		r.pauses.forget(req.Name)
		r.launched.Delete(claim.UID)
		return reconcile.Result{}, nil
	}
	if _, done := r.launched.Load(claim.UID); done || claim.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	// Nothing is bought before the finalizer is there to give it back.
	if !controllerutil.ContainsFinalizer(claim, karpv1.FinalizerTermination) {
		return reconcile.Result{}, client.IgnoreNotFound(r.addFinalizer(ctx, claim))
	}
	if rest := r.pauses.rest(claim, r.Now()); rest > 0 {
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	launched, claim, err := r.launch(ctx, claim)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, client.IgnoreNotFound(err) // somebody was faster; nothing was bought
	}
	if err != nil {
		return reconcile.Result{}, r.failed(ctx, claim, err)
	}
	err = r.record(ctx, claim, launched)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.giveBack(ctx, claim, launched.ProviderID)
	}
	return reconcile.Result{}, err
}

// giveBack ends an instance whose claim was finalized while it was being bought.
func (r *Reconciler) giveBack(ctx context.Context, claim *karpv1.NodeClaim, providerID string) error {
	r.Log.Info("terminating the instance of a nodeclaim that went while it was launched", "NodeClaim", claim.Name, "provider-id", providerID)
	if err := r.Cloud.Terminate(ctx, providerID); err != nil && !errors.Is(err, cloudprovider.ErrNotFound) {
		return fmt.Errorf("terminate the instance of node claim %q, which is gone: %w", claim.Name, err)
	}
	return nil
}

// addFinalizer also says that nobody has tried to launch the claim: that takes the finalizer.
func (r *Reconciler) addFinalizer(ctx context.Context, claim *karpv1.NodeClaim) error {
	before := claim.DeepCopy()
	controllerutil.AddFinalizer(claim, karpv1.FinalizerTermination)
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationLaunch, cloudprovider.Unlaunched)
	return r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// launch checks that the claim's node class can launch, and launches. It returns the claim as it is then.
func (r *Reconciler) launch(ctx context.Context, claim *karpv1.NodeClaim) (cloudprovider.Launched, *karpv1.NodeClaim, error) {
	class := &awsv1.EC2NodeClass{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, class)
	if apierrors.IsNotFound(err) {
		return cloudprovider.Launched{}, claim, &cloudprovider.InsufficientCapacityError{Err: fmt.Errorf("node class %q does not exist", claim.Spec.NodeClassRef.Name)}
	}
	if err != nil {
		return cloudprovider.Launched{}, claim, err
	}
	if err := launchable(class); err != nil {
		return cloudprovider.Launched{}, claim, err
	}
	// The cloud may write for a claim whose caller has left already, so what it writes is a copy.
	enrolled := claim.DeepCopy()
	enroll := func(ctx context.Context, mark string) error { return r.enroll(ctx, enrolled, mark) }
	launched, err := r.Cloud.LaunchTogether(ctx, claim, class, enroll)
	if ctx.Err() != nil {
		return cloudprovider.Launched{}, claim, errors.Join(err, ctx.Err())
	}
	return launched, enrolled, err
}

// enroll writes down how a claim is launched.
func (r *Reconciler) enroll(ctx context.Context, claim *karpv1.NodeClaim, mark string) error {
	before := claim.DeepCopy()
	if mark == "" {
		delete(claim.Annotations, karpv1.AnnotationLaunch)
	} else {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationLaunch, mark)
	}
	if err := r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		before.DeepCopyInto(claim)
		return err
	}
	return nil
}

// launchable says why a node class cannot launch now; nil if it can.
func launchable(class *awsv1.EC2NodeClass) error {
	if class.DeletionTimestamp != nil {
		return &cloudprovider.InsufficientCapacityError{Err: fmt.Errorf("node class %q is being deleted", class.Name)}
	}
	ready, ok := condition.Get(class, condition.Ready)
	switch {
	case condition.IsFalse(class, condition.Ready):
		return &cloudprovider.NodeClassNotReadyError{Err: fmt.Errorf("node class %q: %s", class.Name, ready.Message)}
	case !ok || !condition.IsTrue(class, condition.Ready):
		return &cloudprovider.CreateError{Reason: "NodeClassReadinessUnknown", Message: fmt.Sprintf("the readiness of node class %q is not known yet", class.Name)}
	case ready.ObservedGeneration != class.Generation:
		return &cloudprovider.NodeClassNotReadyError{Err: fmt.Errorf("node class %q has changed and was not looked at since", class.Name)}
	}
	return nil
}

// record writes what was bought: labels and annotations first, since Launched promises that they are there.
// The claim's own labels win over the cloud's, the cloud's annotations over the claim's.
func (r *Reconciler) record(ctx context.Context, claim *karpv1.NodeClaim, launched cloudprovider.Launched) error {
	before := claim.DeepCopy()
	labels := map[string]string{}
	maps.Copy(labels, launched.Labels)
	maps.Copy(labels, claim.Labels)
	claim.Labels = labels
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	maps.Copy(claim.Annotations, launched.Annotations)
	if err := r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	before = claim.DeepCopy()
	claim.Status.ProviderID = launched.ProviderID
	claim.Status.ImageID = launched.ImageID
	claim.Status.Capacity = launched.Capacity
	claim.Status.Allocatable = launched.Allocatable
	condition.SetTrue(claim, karpv1.ConditionLaunched, r.Now())
	if err := r.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	r.launched.Store(claim.UID, true)
	r.Log.Info("launched nodeclaim",
		"NodeClaim", claim.Name, "provider-id", launched.ProviderID, "instance-type", labels["node.kubernetes.io/instance-type"],
		"zone", labels["topology.kubernetes.io/zone"], "capacity-type", labels[karpv1.LabelCapacityType])
	return nil
}

// failed turns a launch error into what comes next: give the claim up, or say so and try again later.
func (r *Reconciler) failed(ctx context.Context, claim *karpv1.NodeClaim, err error) error {
	if capacity := (*cloudprovider.InsufficientCapacityError)(nil); errors.As(err, &capacity) {
		r.Events.Warn(claim, "InsufficientCapacityError", "NodeClaim %s event: %s", claim.Name, cut(err.Error()))
		return r.giveUp(ctx, claim, "insufficient_capacity", err)
	}
	if notReady := (*cloudprovider.NodeClassNotReadyError)(nil); errors.As(err, &notReady) {
		return r.giveUp(ctx, claim, "nodeclass_not_ready", err)
	}
	r.pauses.failed(claim, r.Now())
	reason, message := "LaunchFailed", cut(err.Error())
	if create := (*cloudprovider.CreateError)(nil); errors.As(err, &create) {
		reason, message = create.Reason, create.Message
	}
	before := claim.DeepCopy()
	if condition.SetUnknown(claim, karpv1.ConditionLaunched, reason, message, r.Now()) {
		patchErr := r.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		err = errors.Join(err, client.IgnoreNotFound(patchErr))
	}
	return fmt.Errorf("launch node claim %q: %w", claim.Name, err)
}

// giveUp deletes the claim, so that its pods are planned again.
func (r *Reconciler) giveUp(ctx context.Context, claim *karpv1.NodeClaim, reason string, cause error) error {
	r.Log.Error("failed launching nodeclaim", "NodeClaim", claim.Name, "error", cause)
	// The version makes sure that it was not launched meanwhile by the process before this one.
	err := r.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		r.Metrics.Disrupted(claim, reason)
	}
	return err
}

// cut keeps the first 300 characters: a condition and an event are read by people.
func cut(s string) string {
	const limit = 300
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "..."
	}
	return s
}
