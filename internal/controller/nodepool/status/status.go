// Package status says of each NodePool whether it is valid, whether its node class is ready, and how
// much of it is in use.
package status

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// Reconciler keeps a NodePool's conditions.
type Reconciler struct {
	Client client.Client
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time
	// StaticCapacity is the feature gate of that name.
	StaticCapacity bool
	// Held says why no instance may be launched for a pool of this class now, and when that is to be looked at again; zero if a change
	// is announced by Wake. Nil holds nothing back.
	Held func(pool, class string) (f cloudprovider.Finding, until time.Time, held bool)
	// Wake, if set, has every pool looked at again at once, for each item.
	Wake <-chan ctrlevent.GenericEvent
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr)
	if r.Wake != nil {
		b = b.WatchesRawSource(source.Channel(r.Wake, handler.EnqueueRequestsFromMapFunc(r.all)))
	}
	return b.
		Named("nodepool.readiness").
		For(&karpv1.NodePool{}).
		Watches(&awsv1.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(cluster.PoolRequests(mgr.GetClient()))).
		Complete(patch.Retry(r))
}

// all are the requests for every pool.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var pools karpv1.NodePoolList
	if err := r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("list NodePools to look at them again", "error", err)
		return nil
	}
	out := make([]reconcile.Request, 0, len(pools.Items))
	for i := range pools.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
	}
	return out
}

// Reconcile validates the pool, looks at its node class, and warns of fields that do nothing yet.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) || pool.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	class := &awsv1.EC2NodeClass{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class)
	switch {
	case apierrors.IsNotFound(err):
		class = nil
	case err != nil:
		return reconcile.Result{}, err
	}
	for _, f := range support.UnsupportedNodePool(pool) {
		r.Events.WarnEvery(time.Hour, pool, "FieldWithoutEffect", "%s: %s", f.Path, f.Message)
	}
	if pool.Spec.Replicas != nil && !r.StaticCapacity {
		r.Events.WarnEvery(time.Hour, pool, "FieldWithoutEffect", "spec.replicas: the feature gate StaticCapacity is off, so the pool launches no nodes, neither to this number nor for pods")
	}
	if pool, err = r.stampHash(ctx, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := pool.DeepCopy()
	judge(pool, class, r.Now())
	again := reconcile.Result{RequeueAfter: r.hold(pool)}
	if equality.Semantic.DeepEqual(before.Status, pool.Status) {
		return again, nil
	}
	err = r.Client.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return again, client.IgnoreNotFound(err)
}

// hold says on the pool whether launches for it are held back, and returns when to look again; zero if a change is announced.
func (r *Reconciler) hold(pool *karpv1.NodePool) time.Duration {
	if r.Held == nil {
		return 0
	}
	f, until, held := r.Held(pool.Name, pool.Spec.Template.Spec.NodeClassRef.Name)
	if !held {
		condition.Clear(pool, karpv1.ConditionNodesCanJoin, r.Now())
		return 0
	}
	condition.SetFalse(pool, karpv1.ConditionNodesCanJoin, f.Cause, f.Text(), r.Now())
	if until.IsZero() {
		return 0
	}
	return max(until.Sub(r.Now()), time.Second)
}

// judge sets the pool's conditions from what it says and from its node class, nil if there is none.
func judge(pool *karpv1.NodePool, class *awsv1.EC2NodeClass, now time.Time) {
	if err := pool.RuntimeValidate(awsv1.Vocabulary()); err != nil {
		condition.SetFalse(pool, karpv1.ConditionValidationSucceeded, "NodePoolValidationFailed", err.Error(), now)
	} else {
		condition.SetTrue(pool, karpv1.ConditionValidationSucceeded, now)
	}
	const typ = karpv1.ConditionNodeClassReady
	if class == nil {
		condition.SetFalse(pool, typ, "NodeClassNotFound", "NodeClass not found on cluster", now)
		return
	}
	ready, known := condition.Get(class, condition.Ready)
	switch {
	case class.DeletionTimestamp != nil:
		condition.SetFalse(pool, typ, "NodeClassTerminating", "NodeClass is Terminating", now)
	case condition.IsTrue(class, condition.Ready):
		condition.SetTrue(pool, typ, now)
	case known && condition.IsFalse(class, condition.Ready):
		condition.SetFalse(pool, typ, ready.Reason, ready.Message, now)
	default:
		condition.SetFalse(pool, typ, "NodeClassReadinessUnknown", "Node Class Readiness Unknown", now)
	}
}

// stampHash writes the hash of the pool's template, by which claims know that they are out of date. When the
// hash's version is new, the claims are stamped first: they were not made under another template, only
// hashed by another rule.
func (r *Reconciler) stampHash(ctx context.Context, pool *karpv1.NodePool) (*karpv1.NodePool, error) {
	hash, err := pool.Hash()
	if err != nil {
		return nil, fmt.Errorf("hash the template of node pool %q: %w", pool.Name, err)
	}
	if pool.Annotations[karpv1.AnnotationNodePoolHashVersion] != karpv1.NodePoolHashVersion {
		if err := r.restampClaims(ctx, pool, hash); err != nil {
			return nil, err
		}
	} else if pool.Annotations[karpv1.AnnotationNodePoolHash] == hash {
		return pool, nil
	}
	before := pool.DeepCopy()
	if pool.Annotations == nil {
		pool.Annotations = map[string]string{}
	}
	pool.Annotations[karpv1.AnnotationNodePoolHash] = hash
	pool.Annotations[karpv1.AnnotationNodePoolHashVersion] = karpv1.NodePoolHashVersion
	return pool, r.Client.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *Reconciler) restampClaims(ctx context.Context, pool *karpv1.NodePool, hash string) error {
	var claims karpv1.NodeClaimList
	if err := r.Client.List(ctx, &claims, client.MatchingLabels{karpv1.LabelNodePool: pool.Name}); err != nil {
		return err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Annotations[karpv1.AnnotationNodePoolHashVersion] == karpv1.NodePoolHashVersion {
			continue
		}
		before := claim.DeepCopy()
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[karpv1.AnnotationNodePoolHashVersion] = karpv1.NodePoolHashVersion
		if !condition.IsTrue(claim, karpv1.ConditionDrifted) {
			claim.Annotations[karpv1.AnnotationNodePoolHash] = hash
		}
		if err := r.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
