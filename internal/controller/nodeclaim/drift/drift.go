// Package drift marks NodeClaims that are not what their NodePool and node class would launch now. It ends none of them: that
// is disruption's business, under budgets.
package drift

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

const (
	// again is how often a claim is looked at when nothing happens.
	again = 5 * time.Minute
	// oldEnough is the age from which on it is asked whether a claim's type is still sold, and soldFor how long a yes is believed.
	oldEnough, soldFor = time.Hour, 30 * time.Minute
)

// provider is what the cloud says of a claim that has an instance, and what it sells.
type provider interface {
	// Drift returns why the instance is not what the class asks for; empty if it is. After an error nothing is known.
	Drift(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (reason string, err error)
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Reconciler keeps the condition Drifted.
type Reconciler struct {
	Client client.Client
	Cloud  provider
	Labels requirement.Labels
	Log    *slog.Logger
	Now    func() time.Time

	mu sync.Mutex
	// sold is when the type of a claim was last found among those that are sold.
	sold map[types.UID]time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("nodeclaim.drift").
		For(&karpv1.NodeClaim{}).
		Watches(&karpv1.NodePool{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, pool client.Object) []reconcile.Request {
			return r.requests(ctx, func(c *karpv1.NodeClaim) bool { return c.Labels[karpv1.LabelNodePool] == pool.GetName() })
		})).
		Watches(&awsv1.EC2NodeClass{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, class client.Object) []reconcile.Request {
			return r.requests(ctx, func(c *karpv1.NodeClaim) bool {
				return awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) && c.Spec.NodeClassRef.Name == class.GetName()
			})
		})).
		WithOptions(eventfilter.Options(10, time.Second, time.Minute)).
		Complete(patch.Retry(r))
}

// requests are for the claims that of picks.
func (r *Reconciler) requests(ctx context.Context, of func(*karpv1.NodeClaim) bool) []reconcile.Request {
	var claims karpv1.NodeClaimList
	if err := r.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error("listing node claims", "error", err)
		return nil
	}
	var out []reconcile.Request
	for i := range claims.Items {
		if of(&claims.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: claims.Items[i].Name}})
		}
	}
	return out
}

// Reconcile sets or removes the condition, and comes back in five minutes.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := cluster.OwnClaim(ctx, r.Client, req.NamespacedName)
	if err != nil || claim == nil {
		return reconcile.Result{}, err
	}
	name := claim.Labels[karpv1.LabelNodePool]
	if claim.DeletionTimestamp != nil || name == "" {
		r.forget(claim.UID)
		return reconcile.Result{}, nil
	}
	pool := &karpv1.NodePool{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !condition.IsTrue(claim, karpv1.ConditionLaunched) {
		return reconcile.Result{}, r.mark(ctx, claim, "")
	}
	reason, err := r.why(ctx, claim, pool)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("tell whether node claim %q is out of date: %w", claim.Name, err)
	}
	return reconcile.Result{RequeueAfter: again}, r.mark(ctx, claim, reason)
}

// why returns why the claim is out of date, the cheapest questions first; empty if it is not.
func (r *Reconciler) why(ctx context.Context, claim *karpv1.NodeClaim, pool *karpv1.NodePool) (string, error) {
	if reason, err := disrupt.OutOfDate(claim, pool, r.Labels); reason != "" || err != nil {
		return reason, err
	}
	class := &awsv1.EC2NodeClass{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if sold, err := r.stillSold(ctx, claim, class); err != nil || !sold {
		return disrupt.InstanceTypeNotFound, err
	}
	reason, err := r.Cloud.Drift(ctx, class, claim)
	if errors.Is(err, cloudprovider.ErrNotFound) { // the instance has gone; others see to that
		return "", nil
	}
	return reason, err
}

func (r *Reconciler) stillSold(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) (bool, error) {
	if !condition.IsReady(class) { // what it sells is not known; nothing is replaced for that
		return true, nil
	}
	now := r.Now()
	r.mu.Lock()
	recent := now.Sub(r.sold[claim.UID]) < soldFor
	r.mu.Unlock()
	if recent || now.Sub(claim.CreationTimestamp.Time) <= oldEnough {
		return true, nil
	}
	sells, err := r.Cloud.InstanceTypes(ctx, class)
	if err != nil {
		return false, err
	}
	if !disrupt.StillSold(claim, sells, r.Labels, awsv1.LabelReservationID, awsv1.LabelReservationType, awsv1.LabelReservationInterruptible) {
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sold == nil {
		r.sold = map[types.UID]time.Time{}
	}
	r.sold[claim.UID] = now
	return true, nil
}

func (r *Reconciler) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sold, uid)
}

// mark writes the reason, or removes the condition if there is none.
func (r *Reconciler) mark(ctx context.Context, claim *karpv1.NodeClaim, reason string) error {
	before := claim.DeepCopy()
	changed := false
	if reason == "" {
		changed = condition.Clear(claim, karpv1.ConditionDrifted, r.Now())
	} else {
		changed = condition.SetTrueWithReason(claim, karpv1.ConditionDrifted, reason, reason, r.Now())
	}
	if !changed {
		return nil
	}
	if reason != "" {
		r.Log.Debug("marking drifted", "NodeClaim", claim.Name, "Node", claim.Status.NodeName, "reason", reason)
	}
	err := r.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return client.IgnoreNotFound(err)
}
