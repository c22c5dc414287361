// Package join watches launched NodeClaims until their instances have become nodes. One that is late is looked into: the
// cause, with what to do about it, goes to the claim's condition Registered, to an event and to a metric. A
// cause that certainly keeps others from joining, too, opens a breaker, see Breakers.
package join

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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

// lookAgain is how often a claim that is late is looked into: consoles are read with a delay.
const lookAgain = 20 * time.Second

// podQuiet is for how long a pod is not told again that its node does not come.
const podQuiet = 5 * time.Minute

// explainer finds out why an instance has not become a node.
type explainer interface {
	ExplainJoin(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) ([]cloudprovider.Finding, error)
	JoinScopes(class *awsv1.EC2NodeClass) []string
	// RecheckJoins makes the next resolution of every node class look again.
	RecheckJoins()
}

// Reconciler watches the joining of NodeClaims.
type Reconciler struct {
	Client   client.Client
	Cloud    explainer
	Breakers *Breakers
	Times    *Times
	// Removals says whether the owners of startup taints work; nil knows nothing of them.
	Removals *cluster.TaintRemovals
	// Timeout is after which a claim without a Node is ended; what it ends by itself counts as a failure to join.
	Timeout time.Duration
	// Changed is called when node classes should be looked at again.
	Changed func()
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time

	mu    sync.Mutex
	cases map[types.UID]*fate
	names map[string]types.UID
	// standstills are what is known of nodes that have joined.
	standstills standstills
}

// fate is what is known of a claim that has not joined.
type fate struct {
	cause   string // the last one counted; empty = none
	covered bool   // the last look has found a cause for which the class is held back anyway
	ended   bool   // its waste was counted
	// looked is when it was last looked into.
	looked time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.join").
		For(&karpv1.NodeClaim{}).
		WithOptions(eventfilter.Options(10, time.Second, time.Minute)).
		Complete(patch.Retry(r))
}

// Reconcile looks into the claim if it is late, and comes back when it would be.
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
		return reconcile.Result{}, r.ended(ctx, claim, launched.LastTransitionTime.Time)
	}
	usual := r.Times.Usual(claim.Spec.NodeClassRef.Name)
	wait := launched.LastTransitionTime.Add(usual).Sub(r.Now())
	if wait = max(wait, r.rest(claim)); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := r.late(ctx, claim, usual); err != nil {
		return reconcile.Result{}, err
	}
	r.looked(claim)
	return reconcile.Result{RequeueAfter: lookAgain}, nil
}

// rest is for how long the last look into a late claim still stands. Writing down what was found wakes the reconciler, and
// what AWS says in words that differ each time would have it look again and again.
func (r *Reconciler) rest(claim *karpv1.NodeClaim) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cases[claim.UID].looked.Add(lookAgain).Sub(r.Now())
}

func (r *Reconciler) looked(claim *karpv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cases[claim.UID].looked = r.Now()
}

// joined learns from a claim whose instance has become a node.
func (r *Reconciler) joined(ctx context.Context, claim *karpv1.NodeClaim, launched, registered time.Time) error {
	r.Times.Learn(claim.Spec.NodeClassRef.Name, claim.UID, registered.Sub(launched))
	class, err := r.class(ctx, claim)
	if err != nil || class == nil {
		return err
	}
	own := joinScope(claim.Labels[karpv1.LabelNodePool], class.Name)
	r.mu.Lock()
	r.standstills.pass(registered, own)
	r.mu.Unlock()
	r.Breakers.Joined(slices.Concat(r.Cloud.JoinScopes(class), []string{own}), registered)
	return r.usable(ctx, claim, class.Name)
}

// class returns the node class of a claim; nil if it is gone.
func (r *Reconciler) class(ctx context.Context, claim *karpv1.NodeClaim) (*awsv1.EC2NodeClass, error) {
	class := &awsv1.EC2NodeClass{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.NodeClassRef.Name}, class)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return class, err
}

// late says why a claim has not joined.
func (r *Reconciler) late(ctx context.Context, claim *karpv1.NodeClaim, usual time.Duration) error {
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
		f = unexplained(found, usual)
	}
	r.count(claim, f.Cause)
	certain := f.Certainty == cloudprovider.Certain
	r.mu.Lock()
	r.cases[claim.UID].covered = certain && (f.Standing || f.Scope != "")
	r.mu.Unlock()
	before := claim.DeepCopy()
	if condition.SetUnknown(claim, karpv1.ConditionRegistered, f.Cause, text(f), r.Now()) {
		if err := r.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return client.IgnoreNotFound(err)
		}
		r.Log.Warn("node does not join", "NodeClaim", claim.Name, "provider-id", claim.Status.ProviderID, "cause", f.Cause, "certainty", f.Certainty, "message", f.Message, "remedy", f.Remedy)
	}
	r.Events.Warn(claim, f.Cause, "Node of NodeClaim %s does not join: %s", claim.Name, text(f))
	if explained {
		r.shared(class, f)
	}
	if certain {
		r.Breakers.Failed(claim.UID) // any other may still join, and is waited for until it has had its time
	}
	return r.tellPods(ctx, claim, f)
}

// tellPods tells the pods that wait for the claim's node why it does not come.
func (r *Reconciler) tellPods(ctx context.Context, claim *karpv1.NodeClaim, f cloudprovider.Finding) error {
	waiting := claim.Nominated(karpv1.AnnotationNominatedPods)
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName == "" && slices.Contains(waiting, pod.UID) {
			r.Events.WarnEvery(podQuiet, pod, "NodeNotJoining", "The node of nodeclaim/%s does not join, %s: %s", claim.Name, f.Cause, text(f))
		}
	}
	return nil
}

// shared tells everybody whom the cause concerns.
func (r *Reconciler) shared(class *awsv1.EC2NodeClass, f cloudprovider.Finding) {
	if f.Certainty != cloudprovider.Certain {
		return
	}
	r.Events.Warn(class, f.Cause, "Nodes of EC2NodeClass %s do not join: %s", class.Name, text(f))
	if f.Standing && !condition.IsFalse(class, awsv1.ConditionNodesCanJoin) {
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

// unexplained is what is said when nothing was found.
func unexplained(found []cloudprovider.Finding, usual time.Duration) cloudprovider.Finding {
	message := fmt.Sprintf("the instance has not become a node after %v, and nothing was found that explains it", usual.Round(time.Second))
	var missed []string
	for _, f := range found {
		if !f.Joins {
			missed = append(missed, f.Message)
		}
	}
	if len(missed) > 0 {
		message += "; " + strings.Join(missed, "; ")
	}
	return cloudprovider.Finding{Cause: cloudprovider.CauseUnknown, Certainty: cloudprovider.Unchecked, Message: message}
}

// ended settles the account of a claim that goes without having joined. Why its instance ended by itself is worth
// knowing even if it was never late.
func (r *Reconciler) ended(ctx context.Context, claim *karpv1.NodeClaim, launched time.Time) error {
	r.mu.Lock()
	cause, done := r.cases[claim.UID].cause, r.cases[claim.UID].ended
	r.mu.Unlock()
	if done {
		return nil
	}
	if cause == "" && r.rest(claim) > 0 {
		return nil // nothing was found a moment ago
	}
	if cause == "" {
		class, err := r.class(ctx, claim)
		if err != nil || class == nil {
			return err
		}
		found, err := r.Cloud.ExplainJoin(ctx, claim, class)
		if err != nil {
			return fmt.Errorf("find out why node claim %q ends: %w", claim.Name, err)
		}
		r.looked(claim)
		f, explained := cloudprovider.First(found)
		if !explained || !f.Ended {
			return nil // somebody wanted it to go
		}
		cause = f.Cause
		r.count(claim, cause)
		r.Events.Warn(claim, cause, "Node of NodeClaim %s did not join: %s", claim.Name, text(f))
		r.shared(class, f)
	}
	r.timedOut(claim, cause, launched)
	r.Breakers.Failed(claim.UID)
	r.Metrics.JoinWaste.WithLabelValues(cause).Add(r.Now().Sub(launched).Hours())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cases[claim.UID].ended = true
	return nil
}

// count counts a claim that does not join once for each cause.
func (r *Reconciler) count(claim *karpv1.NodeClaim, cause string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cases[claim.UID].cause == cause {
		return
	}
	r.cases[claim.UID].cause = cause
	r.Metrics.JoinFailures.WithLabelValues(cause).Inc()
}

func (r *Reconciler) remember(claim *karpv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cases == nil {
		r.cases, r.names = map[types.UID]*fate{}, map[string]types.UID{}
	}
	if r.cases[claim.UID] == nil {
		r.cases[claim.UID] = &fate{}
	}
	r.names[claim.Name] = claim.UID
}

func (r *Reconciler) forget(name string) {
	r.mu.Lock()
	uid := r.names[name]
	delete(r.names, name)
	delete(r.cases, uid)
	delete(r.standstills.stuck, uid)
	r.mu.Unlock()
	r.Times.Forget(uid)
	r.Breakers.Gone(uid)
}
