// Package termination terminates deleted NodeClaims and their Nodes: drain, volumes, instance, and only then the
// finalizers.
//
// The deletion of either object starts it. The Node object outlives its instance, and the NodeClaim its Node, so
// everything that still exists stays visible.
package termination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
)

// instancePoll is the time between two calls for a terminating instance.
const instancePoll = 5 * time.Second

// concurrency sets how many claims, and how many nodes, are reconciled at once: they mostly wait for EC2 and the API
// server.
const concurrency = 100

// terminator terminates instances. Terminate returns cloudprovider.ErrNotFound once the instance is gone for good, and
// nil while it is shutting down.
type terminator interface {
	Terminate(ctx context.Context, permit destroy.Permit) error
	// FindByClaim returns our instances that were launched for a claim, whatever the claim's status states.
	FindByClaim(ctx context.Context, claim *karpv1.NodeClaim) ([]cloudprovider.Instance, error)
}

// ClaimReconciler finalizes deleted NodeClaims.
type ClaimReconciler struct {
	Client  client.Client
	Guard   *destroy.Guard
	Cloud   terminator
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
	// Pace divides the time between two calls for a terminating instance.
	Pace pace.Pace
}

// Register adds the reconciler to mgr.
func (r *ClaimReconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.termination").
		For(&karpv1.NodeClaim{}, builder.WithPredicates(eventfilter.Deleting(), eventfilter.IgnoreStatusUpdates())).
		Watches(
			&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(cluster.ClaimRequests(mgr.GetClient())),
			builder.WithPredicates(eventfilter.IgnoreHeartbeats()),
		).
		WithOptions(r.options()).
		Complete(destroy.Requeue(patch.RequeueOnConflict(r)))
}

func (r *ClaimReconciler) options() controller.Options {
	return eventfilter.BackoffOptions(concurrency, time.Second, time.Minute)
}

// Reconcile takes a deleted claim one step further: deadline, Nodes, instance, finalizer.
func (r *ClaimReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	if claim.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(claim, karpv1.FinalizerTermination) {
		return reconcile.Result{}, nil
	}
	if annotated, err := r.setDeadline(ctx, claim); annotated || err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.Guard.MayDrain(ctx, claim); err != nil {
		return reconcile.Result{}, err
	}
	if waiting, err := r.deleteNodes(ctx, claim); waiting || err != nil {
		return reconcile.Result{}, err
	}
	gone, err := r.terminate(ctx, claim)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !gone {
		return reconcile.Result{RequeueAfter: r.Pace.Of(instancePoll)}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(r.removeFinalizer(ctx, claim))
}

// invalidDeadline is the reason of events about a deadline that cannot be read.
const invalidDeadline = "InvalidTerminationTimestamp"

// setDeadline annotates the claim with the deadline of its drain. An existing deadline stands, unless it is invalid.
func (r *ClaimReconciler) setDeadline(ctx context.Context, claim *karpv1.NodeClaim) (annotated bool, err error) {
	existing, invalid := claim.TerminationDeadline()
	if invalid != nil {
		r.Events.Warn(claim, invalidDeadline, "The %v", invalid)
	}
	grace := claim.Spec.TerminationGracePeriod
	if grace == nil || existing != nil {
		return false, nil
	}
	deadline := claim.DeletionTimestamp.Add(grace.Duration).Format(time.RFC3339)
	before := claim.DeepCopy()
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationTerminationTimestamp, deadline)
	if _, err := patch.ObjectFrom(ctx, r.Client, before, claim); err != nil {
		return false, err
	}
	r.Log.Info("annotated nodeclaim", "NodeClaim", claim.Name, karpv1.AnnotationTerminationTimestamp, deadline)
	r.Events.Warn(claim, "TerminationGracePeriodExpiring", "All pods will be deleted by %s", deadline)
	return true, nil
}

// deleteNodes deletes the claim's Nodes and reports whether any is left. A Node that was never registered lacks our
// finalizer and is left to the cloud controller manager. One that has it is drained, even if the claim was deleted
// before its status could show that it is registered.
func (r *ClaimReconciler) deleteNodes(ctx context.Context, claim *karpv1.NodeClaim) (waiting bool, err error) {
	nodes, err := cluster.NodesOf(ctx, r.Client, claim.Status.ProviderID)
	if err != nil {
		return false, err
	}
	if !condition.IsTrue(claim, karpv1.ConditionRegistered) {
		nodes = slices.DeleteFunc(
			nodes,
			func(n corev1.Node) bool { return !controllerutil.ContainsFinalizer(&n, karpv1.FinalizerTermination) },
		)
	}
	for i := range nodes {
		if nodes[i].DeletionTimestamp != nil {
			continue
		}
		if err := r.Guard.Node(ctx, &nodes[i], destroy.WhyOf(claim)); err != nil {
			return false, err
		}
	}
	return len(nodes) > 0, nil
}

// terminate terminates the claim's instance and reports whether it is gone for good. A claim without a provider ID may
// have an instance, too: the controller may have stopped after the launch and before it recorded the ID.
func (r *ClaimReconciler) terminate(ctx context.Context, claim *karpv1.NodeClaim) (gone bool, err error) {
	if claim.Status.ProviderID == "" {
		return r.terminateStray(ctx, claim)
	}
	err = r.terminateInstance(ctx, claim, claim.Status.ProviderID)
	if err != nil && !errors.Is(err, cloudprovider.ErrNotFound) {
		before := claim.DeepCopy()
		if r.Events.Warn(claim, reasonTerminationFailed, "%s", recordFailure(claim, err, r.Now())); !equality.Semantic.DeepEqual(
			before.Status,
			claim.Status,
		) {
			_, patchErr := patch.StatusFrom(ctx, r.Client, before, claim)
			err = errors.Join(err, client.IgnoreNotFound(patchErr))
		}
		return false, fmt.Errorf("terminate the instance of node claim %q: %w", claim.Name, err)
	}
	gone = err != nil
	return gone, markTerminating(ctx, r.Client, claim, r.Now())
}

// terminateInstance terminates an instance of a claim that is being deleted.
func (r *ClaimReconciler) terminateInstance(ctx context.Context, claim *karpv1.NodeClaim, providerID string) error {
	permit, err := r.Guard.OfClaim(ctx, claim, providerID)
	if err != nil {
		return err
	}
	return r.Cloud.Terminate(ctx, permit)
}

func (r *ClaimReconciler) terminateStray(ctx context.Context, claim *karpv1.NodeClaim) (gone bool, err error) {
	instances, err := r.Cloud.FindByClaim(ctx, claim)
	if err != nil {
		return false, fmt.Errorf("look for an instance of node claim %q: %w", claim.Name, err)
	}
	gone = true
	for _, i := range instances {
		if err := r.terminateInstance(ctx, claim, i.ProviderID); !errors.Is(err, cloudprovider.ErrNotFound) {
			if err != nil {
				return false, err
			}
			gone = false
		}
	}
	return gone, nil
}

// reasonTerminationFailed is the reason of InstanceTerminating=Unknown on a claim with an instance that cannot be
// terminated.
const reasonTerminationFailed = "FailedTermination"

// recordFailure sets on a claim that its instance could not be terminated, unless it is shutting down already. It
// returns the message.
func recordFailure(claim *karpv1.NodeClaim, err error, now time.Time) string {
	message := fmt.Sprintf("Terminating instance %s failed: %v", claim.Status.ProviderID, err)
	if !condition.IsTrue(claim, karpv1.ConditionInstanceTerminating) {
		condition.SetUnknown(claim, karpv1.ConditionInstanceTerminating, condition.Because(reasonTerminationFailed, message), now)
	}
	return message
}

// markTerminating sets InstanceTerminating. From then on the claim does not count as a node of its pool.
func markTerminating(ctx context.Context, c client.Client, claim *karpv1.NodeClaim, now time.Time) error {
	before := claim.DeepCopy()
	if !condition.SetTrue(claim, karpv1.ConditionInstanceTerminating, now) {
		return nil
	}
	_, err := patch.StatusFrom(ctx, c, before, claim)
	return err
}

// removeFinalizer removes the claim's finalizer, with which the API server deletes the claim.
func (r *ClaimReconciler) removeFinalizer(ctx context.Context, claim *karpv1.NodeClaim) error {
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, karpv1.FinalizerTermination)
	if _, err := patch.ObjectFrom(ctx, r.Client, before, claim); err != nil {
		return err
	}
	pool := claim.Labels[karpv1.LabelNodePool]
	r.Log.Info("deleted nodeclaim", "NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID)
	if c, ok := condition.Get(claim, karpv1.ConditionInstanceTerminating); ok && c.Status == metav1.ConditionTrue {
		r.Metrics.InstanceTermination.WithLabelValues(pool).Observe(r.Now().Sub(c.LastTransitionTime.Time).Seconds())
	}
	r.Metrics.ClaimTermination.WithLabelValues(pool).Observe(r.Now().Sub(claim.DeletionTimestamp.Time).Seconds())
	r.Metrics.ClaimsTerminated.WithLabelValues(pool, claim.Labels[karpv1.LabelCapacityType], claim.Labels[corev1.LabelTopologyZone]).Inc()
	return nil
}
