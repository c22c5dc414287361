// Package overlay applies NodeOverlays: whenever an overlay, a pool or a node class changes, it evaluates all overlays
// together, writes the verdict to each overlay's status, and passes the valid ones to the planning.
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

// reevaluateInterval is the time between two evaluations when only the offerings of the cloud change, which happens
// rarely.
const reevaluateInterval = 6 * time.Hour

// instanceTypes returns what can be launched for a node class, without overlays.
type instanceTypes interface {
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// planning receives the valid overlays, and the pools for which they were evaluated.
type planning interface {
	Set(book overlay.Overlays, pools []types.UID)
}

// Reconciler evaluates all overlays at once.
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
		Complete(patch.RequeueOnConflict(r))
}

// readinessChanged accepts a change of a node class's readiness: only a ready node class lists what it can launch.
func readinessChanged() predicate.Predicate {
	ready := func(o client.Object) bool { return condition.IsTrue(o.(*awsv1.EC2NodeClass), condition.Ready) }
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return ready(e.ObjectOld) != ready(e.ObjectNew) }}
}

// Reconcile evaluates all overlays, writes the verdicts, and applies the valid overlays.
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
	// A pool that cannot be evaluated does not delay the others; it launches nothing until it can be.
	pools, unread := r.evaluable(ctx, all.Items)
	book, verdicts := overlay.Evaluate(overlays, pools, r.Terms)
	unwritten := r.write(ctx, verdicts)
	if apierrors.IsConflict(unwritten) { // an overlay has changed meanwhile: evaluate all of them again
		return reconcile.Result{}, unwritten
	}
	uids := make([]types.UID, len(pools))
	for i, p := range pools {
		uids[i] = p.NodePool.UID
	}
	r.Planning.Set(book, uids)
	return reconcile.Result{RequeueAfter: reevaluateInterval}, errors.Join(unread, unwritten)
}

// evaluable returns the pools of ours with what their node classes can launch. It leaves out pools with a node class
// that is not ready, without an error: the readiness triggers a reconcile.
func (r *Reconciler) evaluable(ctx context.Context, pools []karpv1.NodePool) (out []overlay.Pool, _ error) {
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
			errs = append(errs, fmt.Errorf("evaluate node overlays for pool %q: %w", pool.Name, err))
			continue
		}
		out = append(out, overlay.Pool{NodePool: pool, InstanceTypes: all})
	}
	return out, errors.Join(errs...)
}

// write writes each verdict to its overlay's status. It returns a conflict unwrapped, before any other error.
func (r *Reconciler) write(ctx context.Context, verdicts []overlay.Validation) error {
	var errs []error
	for _, v := range verdicts {
		o := v.Overlay
		before := o.DeepCopy()
		if !setCondition(o, v, r.Now()) {
			continue
		}
		if v.Reason != "" && condition.IsTrue(before, v1alpha1.ConditionValidationSucceeded) {
			r.Log.Info("a node overlay is not valid any more", "NodeOverlay", o.Name, "reason", v.Reason, "message", v.Message)
		}
		_, err := patch.StatusFrom(ctx, r.Client, before, o)
		if apierrors.IsConflict(err) {
			return err
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	return errors.Join(errs...)
}

func setCondition(o *v1alpha1.NodeOverlay, v overlay.Validation, now time.Time) (changed bool) {
	status := metav1.ConditionTrue
	if v.Reason != "" {
		status = metav1.ConditionFalse
	}
	return condition.Set(o, metav1.Condition{
		Type: v1alpha1.ConditionValidationSucceeded, Status: status, Reason: v.Reason, Message: v.Message,
	}, now)
}
