// Package status keeps the status of each EC2NodeClass: what its selectors match, and whether nodes can launch from it.
// When a class is deleted, it deletes what was created in the cloud for it.
package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/support"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// deletionPoll is the time between two checks of a deleted class that NodeClaims still refer to.
const deletionPoll = 10 * time.Minute

const (
	// resolveTimeout limits a resolution, which makes dozens of calls: a service that does not answer takes a worker no longer.
	resolveTimeout = 90 * time.Second
	// waitingPoll is the time between two looks at what the process waits for. A change of that triggers one, too.
	waitingPoll = 30 * time.Second
)

// resolver resolves a class to its status, and deletes what was created for it.
type resolver interface {
	ResolveNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) cloudprovider.Resolution
	NodeClassHash(class *awsv1.EC2NodeClass) (hash, version string, err error)
	DeleteNodeClassResources(ctx context.Context, class *awsv1.EC2NodeClass) error
}

// Reconciler reconciles EC2NodeClasses.
type Reconciler struct {
	Client client.Client
	Cloud  resolver
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time
	// Waiting returns why nothing of a class can be resolved yet, as a cloudprovider.ErrNotKnownYet; nil never waits.
	Waiting func() error
	// StandIns returns, in words, which answers of AWS to an earlier process are used; nil has none.
	StandIns func() []string
	// Triggers, if set, enqueues every class for each item.
	Triggers <-chan ctrlevent.GenericEvent
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr)
	if r.Triggers != nil {
		b = b.WatchesRawSource(source.Channel(r.Triggers, handler.EnqueueRequestsFromMapFunc(r.allClasses)))
	}
	return b.
		Named("nodeclass").
		For(&awsv1.EC2NodeClass{}, builder.WithPredicates(eventfilter.IgnoreStatusUpdates())).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(classOf), builder.WithPredicates(eventfilter.OnlyDeletions())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 10,
			// A failed call to AWS is repeated within a minute, however long it has been failing.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second/4, time.Minute),
		}).
		Complete(patch.RequeueOnConflict(r))
}

// allClasses returns a request for every class.
func (r *Reconciler) allClasses(ctx context.Context, _ client.Object) []reconcile.Request {
	var classes awsv1.EC2NodeClassList
	if err := r.Client.List(ctx, &classes); err != nil {
		r.Log.Error("listing node classes", "error", err)
		return nil
	}
	var out []reconcile.Request
	for _, c := range classes.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: c.Name}})
	}
	return out
}

// classOf maps a claim to its class, which may wait for the claim's deletion.
func classOf(_ context.Context, o client.Object) []reconcile.Request {
	claim := o.(*karpv1.NodeClaim)
	if !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}}}
}

// Reconcile resolves the class, or finalizes its deletion.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	class := &awsv1.EC2NodeClass{}
	if err := r.Client.Get(ctx, req.NamespacedName, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if class.DeletionTimestamp != nil {
		return r.finalize(ctx, class)
	}
	if waiting, err := r.reportWaiting(ctx, class); waiting || err != nil {
		return reconcile.Result{RequeueAfter: waitingPoll}, client.IgnoreNotFound(err)
	}
	if changed, err := r.updateHash(ctx, class); changed || err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	for _, f := range support.UnsupportedNodeClass(class) {
		r.Events.WarnEvery(time.Hour, class, "FieldWithoutEffect", "%s: %s", f.Path, f.Message)
	}
	limited, cancel := context.WithTimeout(ctx, resolveTimeout)
	resolved := r.Cloud.ResolveNodeClass(limited, class)
	cancel()
	before := class.DeepCopy()
	apply(class, resolved, r.Now())
	r.reportStandIns(class, resolved)
	if _, err := patch.StatusFrom(ctx, r.Client, before, class); err != nil {
		return reconcile.Result{}, errors.Join(client.IgnoreNotFound(err), resolved.Err)
	}
	if resolved.Err != nil {
		return reconcile.Result{}, resolved.Err
	}
	return reconcile.Result{RequeueAfter: resolved.Next}, nil
}

// reportWaiting sets on the class what the process waits for. While it waits, the class stays as it was resolved before.
func (r *Reconciler) reportWaiting(ctx context.Context, class *awsv1.EC2NodeClass) (waiting bool, err error) {
	var cause error
	if r.Waiting != nil {
		cause = r.Waiting()
	}
	if cause == nil {
		return false, nil // reportStandIns removes it
	}
	before := class.DeepCopy()
	condition.SetFalse(class, awsv1.ConditionAWSReachable, condition.Because("WaitingForAWS", cause.Error()), r.Now())
	_, err = patch.StatusFrom(ctx, r.Client, before, class)
	return cause != nil, err
}

// reportStandIns sets on the class which earlier answers of AWS launches use, since when, or removes that and what reportWaiting has set.
func (r *Reconciler) reportStandIns(class *awsv1.EC2NodeClass, resolved cloudprovider.Resolution) {
	stale := resolved.Unread
	if r.StandIns != nil {
		stale = slices.Concat(r.StandIns(), stale)
	}
	if len(stale) == 0 {
		condition.Clear(class, awsv1.ConditionAWSReachable, r.Now())
		return
	}
	message := "launches use what AWS has returned before of " + strings.Join(stale, ", ")
	condition.SetFalse(class, awsv1.ConditionAWSReachable, condition.Because("LastKnownGood", message), r.Now())
}

// apply writes a resolution into the class. It keeps the conditions that the resolution does not mention.
func apply(class *awsv1.EC2NodeClass, resolved cloudprovider.Resolution, now time.Time) {
	conditions := class.Status.Conditions
	class.Status = resolved.Status
	class.Status.Conditions = conditions
	for _, c := range resolved.Conditions {
		condition.Set(class, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}, now)
	}
}

// updateHash sets finalizer and hash on the class. Under a new version of the hash the claims are updated first:
// nothing about them has changed but the way it is hashed.
func (r *Reconciler) updateHash(ctx context.Context, class *awsv1.EC2NodeClass) (changed bool, err error) {
	hash, version, err := r.Cloud.NodeClassHash(class)
	if err != nil {
		return false, fmt.Errorf("hash node class %q: %w", class.Name, err)
	}
	before := class.DeepCopy()
	controllerutil.AddFinalizer(class, awsv1.FinalizerTermination)
	if class.Annotations[awsv1.AnnotationNodeClassHashVersion] != version {
		if err := r.updateClaimHashes(ctx, class, hash, version); err != nil {
			return false, err
		}
	}
	metav1.SetMetaDataAnnotation(&class.ObjectMeta, awsv1.AnnotationNodeClassHash, hash)
	metav1.SetMetaDataAnnotation(&class.ObjectMeta, awsv1.AnnotationNodeClassHashVersion, version)
	return patch.ObjectFrom(ctx, r.Client, before, class)
}

func (r *Reconciler) updateClaimHashes(ctx context.Context, class *awsv1.EC2NodeClass, hash, version string) error {
	claims, err := r.claimsOf(ctx, class)
	if err != nil {
		return err
	}
	for _, claim := range claims {
		if claim.Annotations[awsv1.AnnotationNodeClassHashVersion] == version {
			continue
		}
		before := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, awsv1.AnnotationNodeClassHashVersion, version)
		if !condition.IsTrue(claim, karpv1.ConditionDrifted) {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, awsv1.AnnotationNodeClassHash, hash)
		}
		if _, err := patch.ObjectFrom(ctx, r.Client, before, claim); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) claimsOf(ctx context.Context, class *awsv1.EC2NodeClass) ([]*karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	var out []*karpv1.NodeClaim
	for i := range list.Items {
		if ref := list.Items[i].Spec.NodeClassRef; awsv1.IsEC2NodeClass(ref) && ref.Name == class.Name {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

// finalize waits until no claim refers to the class, deletes its cloud resources, and removes the finalizer.
func (r *Reconciler) finalize(ctx context.Context, class *awsv1.EC2NodeClass) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(class, awsv1.FinalizerTermination) {
		return reconcile.Result{}, nil
	}
	claims, err := r.claimsOf(ctx, class)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(claims) > 0 {
		r.Events.Normal(class, "WaitingOnNodeClaimTermination", "Waiting on NodeClaim termination for %s", names(claims))
		return reconcile.Result{RequeueAfter: deletionPoll}, nil
	}
	if err := r.Cloud.DeleteNodeClassResources(ctx, class); err != nil {
		return reconcile.Result{}, fmt.Errorf("delete the resources of node class %q: %w", class.Name, err)
	}
	before := class.DeepCopy()
	controllerutil.RemoveFinalizer(class, awsv1.FinalizerTermination)
	_, err = patch.ObjectFrom(ctx, r.Client, before, class)
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// names lists a few claims.
func names(claims []*karpv1.NodeClaim) string {
	const shown = 5
	var out []string
	for _, c := range claims {
		out = append(out, c.Name)
	}
	slices.Sort(out)
	if rest := len(out) - shown; rest > 0 {
		return strings.Join(out[:shown], ", ") + fmt.Sprintf(" and %d other(s)", rest)
	}
	return strings.Join(out, ", ")
}
