// Package overlay keeps what NodeOverlays say in force: it has the engine judge all of them together whenever an overlay,
// a pool or a node class changes, writes on each what was found out, and hands those that hold to the planning.
package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/controller/eventfilter"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
)

// again is how often overlays are judged when nothing changes but what the cloud sells.
const again = 6 * time.Hour

// instanceTypes says what can be launched for a node class, without overlays.
type instanceTypes interface {
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// planning is told which overlays hold, and which pools they were judged for.
type planning interface {
	Set(book overlay.Book, pools []types.UID)
}

// Reconciler judges all overlays at once.
type Reconciler struct {
	Client   client.Client
	Types    instanceTypes
	Planning planning
	Terms    overlay.Terms
	Log      *slog.Logger
	Now      func() time.Time
}

// Register adds the reconciler to mgr.
func (r *Reconciler) Register(mgr manager.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
	})
	return builder.ControllerManagedBy(mgr).
		Named("nodeoverlay").
		Watches(&v1alpha1.NodeOverlay{}, all, builder.WithPredicates(eventfilter.IgnoreStatusUpdates())).
		Watches(&karpv1.NodePool{}, all, builder.WithPredicates(eventfilter.IgnoreStatusUpdates())).
		Watches(&awsv1.EC2NodeClass{}, all, builder.WithPredicates(predicate.Or(eventfilter.IgnoreStatusUpdates(), readinessChanged()))).
		Complete(patch.Retry(r))
}

// readinessChanged lets a node class pass that has become ready, or is not any more: only a ready one says what it can
// launch.
func readinessChanged() predicate.Predicate {
	ready := func(o client.Object) bool { return condition.IsTrue(o.(*awsv1.EC2NodeClass), condition.Ready) }
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return ready(e.ObjectOld) != ready(e.ObjectNew) }}
}

// Reconcile judges, writes the verdicts, and puts the overlays that hold in force.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list v1alpha1.NodeOverlayList
	var all karpv1.NodePoolList
	for _, l := range []client.ObjectList{&list, &all} {
		if err := r.Client.List(ctx, l); err != nil {
			return reconcile.Result{}, err
		}
	}
	var overlays []*v1alpha1.NodeOverlay
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp == nil {
			overlays = append(overlays, o)
		}
	}
	// A pool that cannot be looked at does not hold up the others; it launches nothing before it can.
	pools, unread := r.judgeable(ctx, all.Items)
	book, verdicts := overlay.Evaluate(overlays, pools, r.Terms)
	unwritten := r.write(ctx, verdicts)
	if apierrors.IsConflict(unwritten) { // an overlay has changed meanwhile: all is judged again
		return reconcile.Result{}, unwritten
	}
	uids := make([]types.UID, len(pools))
	for i, p := range pools {
		uids[i] = p.NodePool.UID
	}
	r.Planning.Set(book, uids)
	return reconcile.Result{RequeueAfter: again}, errors.Join(unread, unwritten)
}

// judgeable are the pools of ours with what their node classes can launch. Those whose node class is not ready are left out without an
// error: its getting ready wakes us.
func (r *Reconciler) judgeable(ctx context.Context, pools []karpv1.NodePool) (out []overlay.Pool, _ error) {
	var errs []error
	for i := range pools {
		pool := &pools[i]
		ref := pool.Spec.Template.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) || pool.DeletionTimestamp != nil {
			continue
		}
		class := &awsv1.EC2NodeClass{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, class)
		if apierrors.IsNotFound(err) || err == nil && !condition.IsTrue(class, condition.Ready) {
			continue
		}
		var all []*catalog.InstanceType
		if err == nil {
			all, err = r.Types.InstanceTypes(ctx, class)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("judge node overlays for pool %q: %w", pool.Name, err))
			continue
		}
		out = append(out, overlay.Pool{NodePool: pool, InstanceTypes: all})
	}
	return out, errors.Join(errs...)
}

// write puts each verdict into its overlay's status. A conflict is returned as it is, before any other error.
func (r *Reconciler) write(ctx context.Context, verdicts []overlay.Verdict) error {
	var errs []error
	for _, v := range verdicts {
		o := v.Overlay
		before := o.DeepCopy()
		if !set(o, v, r.Now()) {
			continue
		}
		if v.Reason != "" && condition.IsTrue(before, v1alpha1.ConditionValidationSucceeded) {
			r.Log.Info("a node overlay does not hold any more", "NodeOverlay", o.Name, "reason", v.Reason, "message", v.Message)
		}
		err := r.Client.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			return err
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

func set(o *v1alpha1.NodeOverlay, v overlay.Verdict, now time.Time) (changed bool) {
	status := metav1.ConditionTrue
	if v.Reason != "" {
		status = metav1.ConditionFalse
	}
	return condition.Set(o, metav1.Condition{
		Type: v1alpha1.ConditionValidationSucceeded, Status: status, Reason: v.Reason, Message: v.Message,
	}, now)
}
