// Package static keeps NodePools of a fixed size at their size: it creates the NodeClaims that are missing, as far as
// the pool's limit on nodes allows, and deletes those that are too many. Which ones go is the engine's decision.
package static

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/static"
)

const (
	// again is how often a pool is looked at when nothing happens, and full the same while its limit keeps it
	// from growing: room comes when a node that is going has gone.
	again, full = time.Minute, 30 * time.Second
	// atOnce bounds how many NodeClaims are created or deleted in parallel.
	atOnce = 20
	// invalidQuiet is for how long a pool is not told again that its claims are refused.
	invalidQuiet = 15 * time.Minute
)

// fleet is what is known of the nodes of a pool, and is told at once what was decided about them.
type fleet interface {
	Fleet(ctx context.Context, pool string) ([]snapshot.Node, error)
	Reserve(ctx context.Context, pool *karpv1.NodePool, want int64) (int64, error)
	Release(pool string)
	Created(claim *karpv1.NodeClaim)
	Condemn(uid types.UID)
	Spare(uid types.UID)
	Forget()
}

// Reconciler keeps pools at their size. It works on one pool at most once at a time.
type Reconciler struct {
	Client  client.Client
	State   fleet
	Labels  requirement.Labels
	Events  *event.Recorder
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Now     func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("static").
		For(&karpv1.NodePool{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(poolOf), builder.WithPredicates(eventfilter.IgnoreStatusUpdates())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(r)
}

// poolOf maps a claim to its pool.
func poolOf(_ context.Context, claim client.Object) []reconcile.Request {
	pool := claim.GetLabels()[karpv1.LabelNodePool]
	if pool == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool}}}
}

// Reconcile adds what a pool lacks, or ends what it has too much.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pool.Spec.Replicas == nil || pool.DeletionTimestamp != nil || !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
		return reconcile.Result{}, nil
	}
	nodes, err := r.State.Fleet(ctx, pool.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	counts := static.Count(nodes)
	if n := static.Excess(*pool.Spec.Replicas, counts); n > 0 {
		return reconcile.Result{RequeueAfter: again}, r.end(ctx, pool, static.Surplus(nodes, n, r.Now()))
	}
	missing := static.Missing(*pool.Spec.Replicas, counts)
	if missing == 0 || !condition.IsTrue(pool, condition.Ready) { // getting ready wakes us
		return reconcile.Result{RequeueAfter: again}, nil
	}
	granted, err := r.State.Reserve(ctx, pool, missing)
	if err != nil {
		return reconcile.Result{}, err
	}
	if granted < missing {
		r.Log.Info("the limit on nodes keeps a node pool below its replicas", "NodePool", pool.Name, "replicas", *pool.Spec.Replicas,
			"nodes", counts.All(), "limit", static.Limit(pool), "created", granted)
	}
	if err := r.create(ctx, pool, granted); err != nil {
		if apierrors.IsInvalid(err) { // it would be refused again: a change of the pool wakes us
			r.Events.WarnEvery(invalidQuiet, pool, "NodeClaimInvalid",
				"The API server refuses the NodeClaims of the pool as invalid: %s. Correct spec.template of the pool", provisioning.Invalidity(err))
			r.Log.Error("creating nodeclaims", "NodePool", pool.Name, "error", err)
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return reconcile.Result{}, err
	}
	if granted < missing {
		return reconcile.Result{RequeueAfter: full}, nil
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// create makes n NodeClaims. They are independent: one that fails does not hold up the rest. But they are alike: where the first is
// invalid, the others are not tried.
func (r *Reconciler) create(ctx context.Context, pool *karpv1.NodePool, n int64) error {
	if n == 0 {
		return nil
	}
	first := panics.Logged(r.Log, "static pool", func() error {
		defer r.State.Release(pool.Name)
		return r.createOne(ctx, pool)
	})
	errs := make([]error, n-1)
	if apierrors.IsInvalid(first) {
		for range errs {
			r.State.Release(pool.Name)
		}
		return first
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range errs {
		group.Go(func() error {
			defer r.State.Release(pool.Name)
			errs[i] = panics.Logged(r.Log, "static pool", func() error { return r.createOne(ctx, pool) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(append(errs, first)...)
}

func (r *Reconciler) createOne(ctx context.Context, pool *karpv1.NodePool) error {
	claim, err := provisioning.FixedClaim(pool, [2]string{awsv1.LabelNodeClass, pool.Spec.Template.Spec.NodeClassRef.Name}, r.Labels)
	if err != nil {
		return err
	}
	if err := r.Client.Create(ctx, claim); err != nil {
		// Whether it was created after all, only the API server knows: it is asked before the next is.
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			r.State.Forget()
		}
		return fmt.Errorf("create a node claim for pool %q: %w", pool.Name, err)
	}
	r.State.Created(claim)
	r.Metrics.ClaimsCreated.WithLabelValues("provisioned", pool.Name, "false").Inc()
	r.Log.Info("created nodeclaim", "NodePool", pool.Name, "NodeClaim", claim.Name, "replicas", *pool.Spec.Replicas)
	return nil
}

// end deletes the claims of nodes; draining them is not our business.
func (r *Reconciler) end(ctx context.Context, pool *karpv1.NodePool, nodes []*snapshot.Node) error {
	errs := make([]error, len(nodes))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, n := range nodes {
		group.Go(func() error {
			errs[i] = panics.Logged(r.Log, "static pool", func() error { return r.endOne(ctx, pool, n) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(errs...)
}

func (r *Reconciler) endOne(ctx context.Context, pool *karpv1.NodePool, n *snapshot.Node) error {
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = n.Claim, n.ClaimUID
	r.State.Condemn(claim.UID)
	err := r.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or gone and another has its name
		return nil
	}
	if err != nil {
		r.State.Spare(claim.UID)
		return fmt.Errorf("end node claim %q, which is one too many for pool %q: %w", claim.Name, pool.Name, err)
	}
	r.Log.Info("deleted nodeclaim", "NodePool", pool.Name, "NodeClaim", n.Claim, "Node", n.Name, "replicas", *pool.Spec.Replicas)
	return nil
}
