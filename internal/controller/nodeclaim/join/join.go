// Package join watches launched NodeClaims until their instances have become nodes. It diagnoses a claim that is late:
// the cause and its remedy go to the claim's condition Registered, to an event and to a metric. A certain cause that
// keeps other instances from joining, too, opens a circuit breaker, see Breakers.
package join

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// recheckInterval is the time between two diagnoses of a late claim: console output, which often has the cause, arrives
// late.
const recheckInterval = 20 * time.Second

// podEventWindow is the dedupe window of the event on a pod that waits for a node that does not join.
const podEventWindow = 5 * time.Minute

// explainer diagnoses why an instance has not become a node.

// explainer finds out why an instance has not become a node.
type explainer interface {
	ExplainJoin(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) ([]cloudprovider.Finding, error)
	JoinScopes(class *awsv1.EC2NodeClass) []string
	// RecheckJoins invalidates what the next resolution of every node class knows about joining.
	RecheckJoins()
}

// Reconciler watches NodeClaims until they have joined.
type Reconciler struct {
	Client   client.Client
	Cloud    explainer
	Breakers *Breakers
	Times    *Times
	// Removals knows whether the owners of startup taints are at work; nil knows nothing.
	Removals *cluster.TaintRemovals
	// Timeout is the time when liveness deletes a claim without a Node; a claim deleted for that reason counts as a failure to
	// join.
	Timeout time.Duration
	// Changed is called when the node classes need a reconcile.
	Changed func()
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time

	mu     sync.Mutex
	claims map[types.UID]*joinState
	names  map[string]types.UID
	// standstills holds what is known of nodes that have joined.
	standstills standstills
}

// joinState describes what is known of a claim that has not joined.
type joinState struct {
	cause      string // the last cause counted; empty for none
	covered    bool   // the last diagnosis found a cause that holds back the class anyway
	terminated bool   // its waste is counted
	// diagnosed is the time when the last diagnosis was made.
	diagnosed time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.join").
		For(&karpv1.NodeClaim{}).
		WithOptions(eventfilter.BackoffOptions(10, time.Second, time.Minute)).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile diagnoses the claim if it is late, and requeues it for the time when it would be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if claim == nil {
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	r.remember(claim)
	launched, _ := condition.Get(claim, karpv1.ConditionLaunched)
	registered, _ := condition.Get(claim, karpv1.ConditionRegistered)
	switch {
	case condition.IsTrue(claim, karpv1.ConditionRegistered):
		return reconcile.Result{}, r.joined(ctx, claim, launched.LastTransitionTime.Time, registered.LastTransitionTime.Time)
	case !condition.IsTrue(claim, karpv1.ConditionLaunched) || claim.Status.ProviderID == "":
		return reconcile.Result{}, nil
	case claim.DeletionTimestamp != nil:
		return reconcile.Result{}, r.terminated(ctx, claim, launched.LastTransitionTime.Time)
	}
	grace := r.Times.GracePeriod(claim.Spec.NodeClassRef.Name)
	wait := launched.LastTransitionTime.Add(grace).Sub(r.Now())
	if wait = max(wait, r.untilNextDiagnosis(claim)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := r.diagnose(ctx, claim, grace); err != nil {
		return reconcile.Result{}, err
	}
	r.recordDiagnosis(claim)
	return reconcile.Result{RequeueAfter: recheckInterval}, nil
}

// untilNextDiagnosis returns the time until the next diagnosis of a late claim is due. Writing a finding triggers a
// reconcile, and AWS error texts may differ each time: without this limit the reconciler would diagnose in a loop.
func (r *Reconciler) untilNextDiagnosis(claim *karpv1.NodeClaim) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims[claim.UID].diagnosed.Add(recheckInterval).Sub(r.Now())
}

func (r *Reconciler) recordDiagnosis(claim *karpv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[claim.UID].diagnosed = r.Now()
}

// joined learns from a claim that has become a node.
func (r *Reconciler) joined(ctx context.Context, claim *karpv1.NodeClaim, launched, registered time.Time) error {
	r.Times.Observe(claim.Spec.NodeClassRef.Name, claim.UID, registered.Sub(launched))
	class, err := r.class(ctx, claim)
	if err != nil || class == nil {
		return err
	}
	own := joinScope(claim.Labels[karpv1.LabelNodePool], class.Name)
	r.mu.Lock()
	r.standstills.recordProgress(registered, own)
	r.mu.Unlock()
	r.Breakers.Joined(slices.Concat(r.Cloud.JoinScopes(class), []string{own}), registered)
	return r.checkUsable(ctx, claim, class.Name)
}

// class returns the node class of a claim; nil if it is gone.
func (r *Reconciler) class(ctx context.Context, claim *karpv1.NodeClaim) (*awsv1.EC2NodeClass, error) {
	class := &awsv1.EC2NodeClass{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, class, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return class, err
}

// diagnose finds and reports why a claim has not joined.
func (r *Reconciler) diagnose(ctx context.Context, claim *karpv1.NodeClaim, grace time.Duration) error {
	class, err := r.class(ctx, claim)
	if err != nil || class == nil {
		return err
	}
	found, err := r.Cloud.ExplainJoin(ctx, claim, class)
	if err != nil {
		return fmt.Errorf("find out why node claim %q is late: %w", claim.Name, err)
	}
	f, explained := cloudprovider.First(found)
	if !explained {
		f = unexplained(found, grace)
	}
	r.count(claim, f.Cause)
	certain := f.Certainty == cloudprovider.Certain
	r.mu.Lock()
	r.claims[claim.UID].covered = certain && (f.FromConfiguration || f.Scope != "")
	r.mu.Unlock()
	before := claim.DeepCopy()
	if condition.SetUnknown(claim, karpv1.ConditionRegistered, condition.Because(f.Cause, text(f)), r.Now()) {
		if _, err := patch.StatusFrom(ctx, r.Client, before, claim); err != nil {
			return client.IgnoreNotFound(err)
		}
		r.Log.Warn(
			"node does not join",
			"NodeClaim",
			claim.Name,
			"provider-id",
			claim.Status.ProviderID,
			"cause",
			f.Cause,
			"certainty",
			f.Certainty,
			"message",
			f.Message,
			"remedy",
			f.Remedy,
		)
	}
	r.Events.Warn(claim, f.Cause, "Node of NodeClaim %s does not join: %s", claim.Name, text(f))
	if explained {
		r.reportShared(class, f)
	}
	if certain {
		r.Breakers.Failed(claim.UID) // with any other cause it may still join before its timeout
	}
	return r.recordPodEvents(ctx, claim, f)
}

// recordPodEvents reports the finding on the pods that wait for the claim's node.
func (r *Reconciler) recordPodEvents(ctx context.Context, claim *karpv1.NodeClaim, f cloudprovider.Finding) error {
	pods, err := cluster.WaitingPods(ctx, r.Client, claim.Nominated(karpv1.AnnotationNominatedPods))
	if err != nil {
		return err
	}
	for _, pod := range pods {
		r.Events.WarnEvery(
			podEventWindow, pod, "NodeNotJoining", "The node of nodeclaim/%s does not join, %s: %s", claim.Name, f.Cause, text(f),
		)
	}
	return nil
}

// reportShared reports a certain cause on the node class, and opens its breaker.
func (r *Reconciler) reportShared(class *awsv1.EC2NodeClass, f cloudprovider.Finding) {
	if f.Certainty != cloudprovider.Certain {
		return
	}
	r.Events.Warn(class, f.Cause, "Nodes of EC2NodeClass %s do not join: %s", class.Name, text(f))
	if f.FromConfiguration && !condition.IsFalse(class, awsv1.ConditionNodesCanJoin) {
		r.Cloud.RecheckJoins()
		r.Changed()
	}
	r.Breakers.Report(f)
}

func text(f cloudprovider.Finding) string {
	if f.Certainty == cloudprovider.Likely {
		return "likely: " + f.Text()
	}
	return f.Text()
}

// unexplained is the finding when no cause was found.
func unexplained(found []cloudprovider.Finding, grace time.Duration) cloudprovider.Finding {
	message := fmt.Sprintf("the instance has not become a node after %v, and no check explains it", grace.Round(time.Second))
	var missed []string
	for _, f := range found {
		if !f.NodeJoins {
			missed = append(missed, f.Message)
		}
	}
	if len(missed) > 0 {
		message += "; " + strings.Join(missed, "; ")
	}
	return cloudprovider.Finding{Cause: cloudprovider.CauseUnknown, Certainty: cloudprovider.Unchecked, Message: message}
}

// terminated settles a claim that is deleted before it has joined. If its instance terminated by itself, the cause
// counts even if the claim was never late.
func (r *Reconciler) terminated(ctx context.Context, claim *karpv1.NodeClaim, launched time.Time) error {
	r.mu.Lock()
	cause, done := r.claims[claim.UID].cause, r.claims[claim.UID].terminated
	r.mu.Unlock()
	if done {
		return nil
	}
	if cause == "" && r.untilNextDiagnosis(claim) > 0 {
		return nil // a recent diagnosis found nothing
	}
	if cause == "" {
		class, err := r.class(ctx, claim)
		if err != nil || class == nil {
			return err
		}
		found, err := r.Cloud.ExplainJoin(ctx, claim, class)
		if err != nil {
			return fmt.Errorf("find out why node claim %q terminates: %w", claim.Name, err)
		}
		r.recordDiagnosis(claim)
		f, explained := cloudprovider.First(found)
		if !explained || !f.InstanceGone {
			return nil // it was deleted on purpose
		}
		cause = f.Cause
		r.count(claim, cause)
		r.Events.Warn(claim, cause, "Node of NodeClaim %s did not join: %s", claim.Name, text(f))
		r.reportShared(class, f)
	}
	r.timedOut(claim, cause, launched)
	r.Breakers.Failed(claim.UID)
	r.Metrics.JoinWaste.WithLabelValues(cause).Add(r.Now().Sub(launched).Hours())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[claim.UID].terminated = true
	return nil
}

// count counts a claim that does not join once per cause.
func (r *Reconciler) count(claim *karpv1.NodeClaim, cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims[claim.UID].cause == cause {
		return
	}
	r.claims[claim.UID].cause = cause
	r.Metrics.JoinFailures.WithLabelValues(cause).Inc()
}

func (r *Reconciler) remember(claim *karpv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims == nil {
		r.claims, r.names = map[types.UID]*joinState{}, map[string]types.UID{}
	}
	if r.claims[claim.UID] == nil {
		r.claims[claim.UID] = &joinState{}
	}
	r.names[claim.Name] = claim.UID
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	uid := r.names[name]
	delete(r.names, name)
	delete(r.claims, uid)
	delete(r.standstills.stuck, uid)
	r.mu.Unlock()
	r.Times.Forget(uid)
	r.Breakers.Gone(uid)
}
