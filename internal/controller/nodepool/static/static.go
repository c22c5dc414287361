// Package static keeps static NodePools at their number of replicas: it creates missing NodeClaims, as far as the
// pool's limit on nodes and its capacity reservations allow, and deletes surplus ones. The engine decides which.
package static

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/static"
)

const (
	// recheckInterval is the time between two reconciles of a pool when nothing changes; limitedInterval is the same
	// while the limit on nodes keeps it from growing, which a terminating node finishes.
	recheckInterval, limitedInterval = time.Minute, 30 * time.Second
	// fullInterval is the same while the capacity reservations of the pool have no free instance. Querying costs no call: EC2 is
	// queried once for each instance that terminates, and every minute.
	fullInterval = 5 * time.Second
	// parallelism bounds how many NodeClaims are created or deleted at once: the API server must
	// stay responsive while one large pool changes.
	parallelism = 20
	// invalidEventWindow is the dedupe window of the event that the API server rejects the claims of a pool.
	invalidEventWindow = 15 * time.Minute
	// shortfallEventWindow is the dedupe window of the event that a pool stays below its replicas.
	shortfallEventWindow = 15 * time.Minute
)

// fleet is the state of a pool's nodes, and records decisions about them at once.
type fleet interface {
	PoolNodes(ctx context.Context, pool string) ([]snapshot.Node, error)
	Reserve(ctx context.Context, pool *karpv1.NodePool, want int64) (int64, error)
	Release(pool string)
	ReservedRoom(ctx context.Context, pool *karpv1.NodePool) (reservation.TemplateRoom, error)
	Created(claim *karpv1.NodeClaim)
	MarkForDeletion(uid types.UID)
	Unmark(uid types.UID)
	Invalidate()
}

// Reconciler keeps pools at their number of replicas. It never reconciles one pool concurrently.
type Reconciler struct {
	Client client.Client
	Guard  *destroy.Guard
	State  fleet
	Labels requirement.Labels
	// TerminateFirst is the feature gate TerminateFirstDrift: drifted nodes may go before their replacements come.
	TerminateFirst bool
	Events         *event.Recorder
	Metrics        *metrics.Metrics
	Log            *slog.Logger
	Now            func() time.Time

	// shortfalls are the last reasons that were logged, by the names of pools; a pool at its replicas has none.
	shortfalls sync.Map
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("static").
		For(&karpv1.NodePool{}).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(poolOf), builder.WithPredicates(eventfilter.IgnoreStatusUpdates())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(destroy.Requeue(r))
}

// poolOf maps a claim to its pool.
func poolOf(_ context.Context, claim client.Object) []reconcile.Request {
	pool := claim.GetLabels()[karpv1.LabelNodePool]
	if pool == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pool}}}
}

// Reconcile creates the NodeClaims that a pool lacks, or deletes those in excess.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		if apierrors.IsNotFound(err) {
			r.shortfalls.Delete(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pool.Spec.Replicas == nil || pool.DeletionTimestamp != nil || !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
		return reconcile.Result{}, nil
	}
	nodes, err := r.State.PoolNodes(ctx, pool.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	counts := static.Count(nodes)
	if n := static.Excess(*pool.Spec.Replicas, counts); n > 0 {
		return reconcile.Result{RequeueAfter: recheckInterval}, r.deleteClaims(ctx, pool, static.SelectForRemoval(nodes, n, r.Now()))
	}
	missing := static.Missing(*pool.Spec.Replicas, counts)
	if missing == 0 {
		r.shortfalls.Delete(pool.Name)
	}
	if missing == 0 || !condition.IsTrue(pool, condition.Ready) { // becoming ready triggers a reconcile
		return reconcile.Result{RequeueAfter: recheckInterval}, nil
	}
	want := r.launchable(ctx, pool, counts, missing)
	if want == 0 {
		return reconcile.Result{RequeueAfter: fullInterval}, nil
	}
	granted, err := r.State.Reserve(ctx, pool, want)
	if err != nil {
		return reconcile.Result{}, err
	}
	if granted < want {
		r.reportShortfall(pool, shortfall{
			reason: fmt.Sprintf("spec.limits.nodes is %d", static.Limit(pool)), replicas: *pool.Spec.Replicas,
			terminating: counts.Deleting,
		})
	}
	var reason karpv1.DisruptionReason
	if r.TerminateFirst {
		reason = static.LaunchReason(nodes)
	}
	if err := r.create(ctx, batch{pool, reason, granted}); err != nil {
		if apierrors.IsInvalid(err) { // a retry is rejected, too; a change of the pool triggers a reconcile
			r.Events.WarnEvery(invalidEventWindow, pool, "NodeClaimInvalid",
				"The API server rejects the NodeClaims of the pool as invalid: %s. Correct spec.template of the pool", provisioning.InvalidCauses(err))
			r.Log.Error("creating nodeclaims", "NodePool", pool.Name, "error", err)
			return reconcile.Result{RequeueAfter: recheckInterval}, nil
		}
		return reconcile.Result{}, err
	}
	switch {
	case granted < want:
		return reconcile.Result{RequeueAfter: limitedInterval}, nil
	case want < missing:
		return reconcile.Result{RequeueAfter: fullInterval}, nil
	}
	return reconcile.Result{RequeueAfter: recheckInterval}, nil
}

// launchable returns how many of the missing nodes can be launched now. Where only capacity reservations are allowed, it is what
// these have free: claims beyond it would be launched in vain, and deleted, again and again.
func (r *Reconciler) launchable(ctx context.Context, pool *karpv1.NodePool, counts static.Counts, missing int64) int64 {
	room, err := r.State.ReservedRoom(ctx, pool)
	if err != nil { // a launch reports what is wrong
		r.Log.Debug("the room for a node pool in capacity reservations is not known", "NodePool", pool.Name, "error", err)
		return missing
	}
	if !room.Only {
		return missing
	}
	free := static.FreeSlots(int64(room.Free), counts)
	if free < missing {
		r.reportShortfall(pool, shortfall{
			reason: "no free instance in its capacity reservations", replicas: *pool.Spec.Replicas,
			terminating: counts.Terminating,
		})
	}
	return min(free, missing)
}

// shortfall states why a pool stays below its replicas. terminating are the nodes that still count and go.
type shortfall struct {
	reason                string
	replicas, terminating int64
}

// reportShortfall reports on the pool why it stays below its replicas, and logs it if it was not the last reason.
func (r *Reconciler) reportShortfall(pool *karpv1.NodePool, s shortfall) {
	message := fmt.Sprintf("The pool stays below its %d replicas: %s", s.replicas, s.reason)
	if s.terminating > 0 {
		message += fmt.Sprintf("; %d of its nodes are terminating and count until they are gone", s.terminating)
	}
	r.Events.NormalEvery(shortfallEventWindow, pool, "BelowReplicas", "%s", message)
	if last, known := r.shortfalls.Swap(pool.Name, s); !known || last != s {
		r.Log.Info("a node pool stays below its replicas", "NodePool", pool.Name, "replicas", s.replicas, "reason", s.reason,
			"terminating", s.terminating)
	}
}

// batch is a number of claims to create in a pool; reason is the disruption that they make up for, empty for none.
type batch struct {
	pool   *karpv1.NodePool
	reason karpv1.DisruptionReason
	n      int64
}

// create creates NodeClaims. A failure of one does not delay the others. But they are alike: if the first is invalid, it
// tries no other.
func (r *Reconciler) create(ctx context.Context, b batch) error {
	if b.n == 0 {
		return nil
	}
	first := panics.ErrorLogged(r.Log, "static pool", func() error {
		defer r.State.Release(b.pool.Name)
		return r.createOne(ctx, b)
	})
	errs := make([]error, b.n-1)
	if apierrors.IsInvalid(first) {
		for range errs {
			r.State.Release(b.pool.Name)
		}
		return first
	}
	var group errgroup.Group
	group.SetLimit(parallelism)
	for i := range errs {
		group.Go(func() error {
			defer r.State.Release(b.pool.Name)
			errs[i] = panics.ErrorLogged(r.Log, "static pool", func() error { return r.createOne(ctx, b) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(append(errs, first)...)
}

func (r *Reconciler) createOne(ctx context.Context, b batch) error {
	pool := b.pool
	claim, err := provisioning.StaticClaim(pool, [2]string{awsv1.LabelNodeClass, pool.Spec.Template.Spec.NodeClassRef.Name}, r.Labels)
	if err != nil {
		return err
	}
	if b.reason != "" {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, karpv1.AnnotationLaunchReason, string(b.reason))
	}
	if err := r.Client.Create(ctx, claim); err != nil {
		// The API server may have created it in spite of the error: the state reads it again before the next claim.
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			r.State.Invalidate()
		}
		return fmt.Errorf("create a node claim for pool %q: %w", pool.Name, err)
	}
	r.State.Created(claim)
	r.Metrics.ClaimsCreated.WithLabelValues("provisioned", pool.Name, "false").Inc()
	r.Log.Info("created nodeclaim", "NodePool", pool.Name, "NodeClaim", claim.Name, "replicas", *pool.Spec.Replicas)
	return nil
}

// reasonFewerReplicas is the reason, in the audit, of nodes beyond the replicas of their pool.
const reasonFewerReplicas = "fewer_replicas"

// deleteClaims deletes the claims of nodes; the termination controller drains them.
func (r *Reconciler) deleteClaims(ctx context.Context, pool *karpv1.NodePool, nodes []*snapshot.Node) error {
	errs := make([]error, len(nodes))
	var group errgroup.Group
	group.SetLimit(parallelism)
	for i, n := range nodes {
		group.Go(func() error {
			errs[i] = panics.ErrorLogged(r.Log, "static pool", func() error { return r.deleteClaim(ctx, pool, n) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(errs...)
}

func (r *Reconciler) deleteClaim(ctx context.Context, pool *karpv1.NodePool, n *snapshot.Node) error {
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = n.Claim, n.ClaimUID
	r.State.MarkForDeletion(claim.UID)
	err := r.Guard.NodeClaim(ctx, claim, destroy.Why{Kind: destroy.Planned, Reason: reasonFewerReplicas, Patient: true})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another claim reuses its name
		return nil
	}
	if err != nil {
		r.State.Unmark(claim.UID)
		return fmt.Errorf("delete node claim %q, which exceeds the replicas of pool %q: %w", claim.Name, pool.Name, err)
	}
	r.Log.Info("deleted nodeclaim", "NodePool", pool.Name, "NodeClaim", n.Claim, "Node", n.Name, "replicas", *pool.Spec.Replicas)
	return nil
}
