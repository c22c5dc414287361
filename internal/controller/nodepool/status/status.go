// Package status keeps the conditions of each NodePool, whether it is valid and whether its node class is ready, and
// the usage in its status.
package status

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Held returns why no instance may be launched for a pool of this class now, and when to check again; zero if Triggers
	// announces the change. Nil holds back nothing.
	Held func(pool, class string) (f cloudprovider.Finding, until time.Time, held bool)
	// Triggers, if set, enqueues every pool for each item.
	Triggers <-chan ctrlevent.GenericEvent
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr)
	if r.Triggers != nil {
		b = b.WatchesRawSource(source.Channel(r.Triggers, handler.EnqueueRequestsFromMapFunc(cluster.AllPools(r.Client))))
	}
	return b.
		Named("nodepool.readiness").
		For(&karpv1.NodePool{}).
		Watches(&awsv1.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(cluster.PoolRequests(mgr.GetClient()))).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile validates the pool, checks its node class, and warns about fields without effect.
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
	if after, err := pool.ReplaceDeferredResize(); err != nil {
		r.Events.WarnEvery(time.Hour, pool, "InvalidAnnotation", "No node is replaced for a deferred resize: %v", err)
	} else if after > 0 && pool.Spec.Replicas != nil {
		r.Events.WarnEvery(time.Hour, pool, "FieldWithoutEffect",
			"annotation %s: spec.replicas is set, and such a pool launches the same nodes again", karpv1.AnnotationReplaceDeferredResize)
	}
	if _, err := pool.Drain(); err != nil {
		r.Events.WarnEvery(time.Hour, pool, "InvalidAnnotation", "Pods leave nodes as without it: %v", err)
	}
	if pool.Spec.Replicas != nil && !r.StaticCapacity {
		r.Events.WarnEvery(
			time.Hour,
			pool,
			"FieldWithoutEffect",
			"spec.replicas: the feature gate StaticCapacity is off, so the pool launches no nodes, neither to this number nor for pods",
		)
	}
	if pool, err = r.updateHash(ctx, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	before := pool.DeepCopy()
	setConditions(pool, class, r.Now())
	result := reconcile.Result{RequeueAfter: r.setNodesCanJoin(pool)}
	_, err = patch.StatusFrom(ctx, r.Client, before, pool)
	return result, client.IgnoreNotFound(err)
}

// setNodesCanJoin sets on the pool whether its launches are held back, and returns when to check again; zero if Triggers
// announces the change.
func (r *Reconciler) setNodesCanJoin(pool *karpv1.NodePool) time.Duration {
	if r.Held == nil {
		return 0
	}
	f, until, held := r.Held(pool.Name, pool.Spec.Template.Spec.NodeClassRef.Name)
	if !held {
		condition.Clear(pool, karpv1.ConditionNodesCanJoin, r.Now())
		return 0
	}
	condition.SetFalse(pool, karpv1.ConditionNodesCanJoin, condition.Because(f.Cause, f.Text()), r.Now())
	if until.IsZero() {
		return 0
	}
	return max(until.Sub(r.Now()), time.Second)
}

// setConditions derives the pool's conditions from its spec and its node class, which is nil if it does not exist.
func setConditions(pool *karpv1.NodePool, class *awsv1.EC2NodeClass, now time.Time) {
	if err := pool.RuntimeValidate(awsv1.Vocabulary()); err != nil {
		condition.SetFalse(pool, karpv1.ConditionValidationSucceeded, condition.Because("NodePoolValidationFailed", err.Error()), now)
	} else {
		condition.SetTrue(pool, karpv1.ConditionValidationSucceeded, now)
	}
	const typ = karpv1.ConditionNodeClassReady
	if class == nil {
		condition.SetFalse(pool, typ, condition.Because("NodeClassNotFound", "NodeClass not found on cluster"), now)
		return
	}
	ready, known := condition.Get(class, condition.Ready)
	switch {
	case class.DeletionTimestamp != nil:
		condition.SetFalse(pool, typ, condition.Because("NodeClassTerminating", "NodeClass is Terminating"), now)
	case condition.IsTrue(class, condition.Ready):
		condition.SetTrue(pool, typ, now)
	case known && condition.IsFalse(class, condition.Ready):
		condition.SetFalse(pool, typ, condition.Because(ready.Reason, ready.Message), now)
	default:
		condition.SetFalse(pool, typ, condition.Because("NodeClassReadinessUnknown", "Node Class Readiness Unknown"), now)
	}
}

// updateHash writes the hash of the pool's template, with which drift compares the claims'. Under a new version of the
// hash the claims are updated first: nothing about them has changed but the way it is hashed.
func (r *Reconciler) updateHash(ctx context.Context, pool *karpv1.NodePool) (*karpv1.NodePool, error) {
	hash, err := pool.Hash()
	if err != nil {
		return nil, fmt.Errorf("hash the template of node pool %q: %w", pool.Name, err)
	}
	if pool.Annotations[karpv1.AnnotationNodePoolHashVersion] != karpv1.NodePoolHashVersion {
		if err := r.updateClaimHashes(ctx, pool, hash); err != nil {
			return nil, err
		}
	} else if pool.Annotations[karpv1.AnnotationNodePoolHash] == hash {
		return pool, nil
	}
	_, err = patch.Object(ctx, r.Client, pool, func() {
		metav1.SetMetaDataAnnotation(&pool.ObjectMeta, karpv1.AnnotationNodePoolHash, hash)
		metav1.SetMetaDataAnnotation(&pool.ObjectMeta, karpv1.AnnotationNodePoolHashVersion, karpv1.NodePoolHashVersion)
	})
	return pool, err
}

func (r *Reconciler) updateClaimHashes(ctx context.Context, pool *karpv1.NodePool, hash string) error {
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
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationNodePoolHashVersion, karpv1.NodePoolHashVersion)
		if !condition.IsTrue(claim, karpv1.ConditionDrifted) {
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationNodePoolHash, hash)
		}
		if _, err := patch.ObjectFrom(ctx, r.Client, before, claim); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
