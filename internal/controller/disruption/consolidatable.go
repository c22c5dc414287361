package disruption

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// Consolidatable maintains the condition of that name: no pod has come to the node or left it for the pool's
// consolidateAfter.
type Consolidatable struct {
	Client client.Client
	Log    *slog.Logger
	Now    func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Consolidatable) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.disruption").
		For(&karpv1.NodeClaim{}).
		Watches(
			&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(r.claimsOf), builder.WithPredicates(eventfilter.IgnoreStatusUpdates()),
		).
		Complete(patch.RequeueOnConflict(r))
}

func (r *Consolidatable) claimsOf(ctx context.Context, pool client.Object) []reconcile.Request {
	var claims karpv1.NodeClaimList
	err := r.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy, client.MatchingLabels{karpv1.LabelNodePool: pool.GetName()})
	if err != nil {
		r.Log.Error("listing the claims of a node pool", "NodePool", pool.GetName(), "error", err)
		return nil
	}
	out := make([]reconcile.Request, 0, len(claims.Items))
	for i := range claims.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: claims.Items[i].Name}})
	}
	return out
}

// Reconcile sets or clears the condition, and requeues for the time at which it would change by itself.
func (r *Consolidatable) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.SharedOwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	name := claim.Labels[karpv1.LabelNodePool]
	if claim.DeletionTimestamp != nil || name == "" {
		return reconcile.Result{}, nil
	}
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Now()
	elapsed, wait := consolidatable(claim, pool, now)
	is, has := condition.Get(claim, karpv1.ConditionConsolidatable)
	if right := is.Status == metav1.ConditionTrue && is.ObservedGeneration == claim.Generation; has == elapsed && (!has || right) {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	claim = claim.DeepCopy()
	_, err = patch.Status(ctx, r.Client, claim, func() {
		if elapsed {
			condition.SetTrue(claim, karpv1.ConditionConsolidatable, now)
		} else {
			condition.Clear(claim, karpv1.ConditionConsolidatable, now)
		}
	})
	return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
}

// consolidatable reports whether consolidateAfter has elapsed for the claim, and if not, how long that takes; zero if
// time alone does not change it.
func consolidatable(claim *karpv1.NodeClaim, pool *karpv1.NodePool, now time.Time) (elapsed bool, wait time.Duration) {
	after := pool.Spec.Disruption.ConsolidateAfter
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	if pool.Spec.Replicas != nil || after.IsNever() || initialized.Status != metav1.ConditionTrue {
		return false, 0
	}
	since := initialized.LastTransitionTime.Time
	if last := claim.Status.LastPodEventTime; !last.IsZero() {
		since = last.Time
	}
	if after.Duration == nil || *after.Duration <= 0 {
		return true, 0
	}
	if wait := since.Add(*after.Duration).Sub(now); wait > 0 {
		return false, wait
	}
	return true, 0
}
