package breaker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
)

// ClassReconciler reports on each EC2NodeClass the pools in which its new nodes fail: the cause is more often in the class than in a pool.
type ClassReconciler struct {
	Client client.Client
	Events *event.Recorder
	Now    func() time.Time
}

// Register adds the reconciler to mgr.
func (r *ClassReconciler) Register(mgr manager.Manager) error {
	enqueue := func(q queue, pools ...client.Object) {
		for _, o := range pools {
			if pool, ok := o.(*karpv1.NodePool); ok && awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}})
			}
		}
	}
	return builder.ControllerManagedBy(mgr).
		Named("nodeclass.breaker").
		For(&awsv1.EC2NodeClass{}).
		Watches(&karpv1.NodePool{}, handler.Funcs{ // an update may refer to another class than before
			CreateFunc: func(_ context.Context, e ctrlevent.CreateEvent, q queue) { enqueue(q, e.Object) },
			UpdateFunc: func(_ context.Context, e ctrlevent.UpdateEvent, q queue) { enqueue(q, e.ObjectOld, e.ObjectNew) },
			DeleteFunc: func(_ context.Context, e ctrlevent.DeleteEvent, q queue) { enqueue(q, e.Object) },
		}).
		Complete(patch.RequeueOnConflict(r))
}

// Reconcile keeps the condition DisruptionPaused of a class and the event about it.
func (r *ClassReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	class := &awsv1.EC2NodeClass{}
	if err := r.Client.Get(ctx, req.NamespacedName, class); err != nil || class.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var pools karpv1.NodePoolList
	if err := r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	var why []string
	var canaries []breaker.PoolHistory
	for i := range pools.Items {
		pool := &pools.Items[i]
		ref := pool.Spec.Template.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) || ref.Name != class.Name || pool.DeletionTimestamp != nil {
			continue
		}
		book := breaker.Read(pool)
		if message := book.SoakMessage(pool.Name, class.Name); message != "" {
			why = append(why, message)
		}
		if r.canary(pool, class) {
			canaries = append(canaries, breaker.PoolHistory{Pool: pool, History: book})
		}
	}
	outlook := breaker.RollbackOf(class, canaries, r.Now())
	if err := r.annotate(ctx, class, outlook); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	slices.Sort(why)
	before := class.DeepCopy()
	if len(why) > 0 {
		cause := condition.Because(string(breaker.ReasonNewNodesFail), strings.Join(why, "; "))
		condition.SetTrueWithReason(class, awsv1.ConditionDisruptionPaused, cause, r.Now())
	} else {
		condition.Clear(class, awsv1.ConditionDisruptionPaused, r.Now())
	}
	r.showRollback(class, outlook)
	if _, err := patch.StatusFrom(ctx, r.Client, before, class); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if outlook.Reason != "" {
		r.Events.WarnEvery(pausedEventWindow, class, awsv1.ConditionRolledBack, "%s", outlook.Message)
	}
	if len(why) > 0 {
		r.Events.WarnEvery(pausedEventWindow, class, awsv1.ConditionDisruptionPaused, "%s", strings.Join(why, "; "))
	}
	if outlook.Next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(outlook.Next.Sub(r.Now()), time.Second)}, nil
}

// canary reports whether a pool of the class rolls out with canaries.
func (r *ClassReconciler) canary(pool *karpv1.NodePool, class *awsv1.EC2NodeClass) bool {
	classes := map[string]string{}
	if text, stated := class.Annotations[karpv1.AnnotationRollout]; stated {
		classes[class.Name] = text
	}
	policy, _ := karpv1.RolloutOf(pool, classes) // the condition of the pool has the error
	return policy.Canary()
}

// annotate records what is known to be good, and decides on a rollback or removes it.
func (r *ClassReconciler) annotate(ctx context.Context, class *awsv1.EC2NodeClass, outlook breaker.Outlook) error {
	before := class.DeepCopy()
	if outlook.Void {
		delete(class.Annotations, awsv1.AnnotationRollback)
	}
	if outlook.Good != nil {
		if _, err := class.Annotate(awsv1.AnnotationKnownGood, outlook.Good); err != nil {
			return err
		}
	}
	if outlook.Rollback != nil {
		if _, err := class.Annotate(awsv1.AnnotationRollback, outlook.Rollback); err != nil {
			return err
		}
	}
	if maps.Equal(before.Annotations, class.Annotations) {
		return nil
	}
	if _, err := patch.ObjectFrom(ctx, r.Client, before, class); err != nil {
		return fmt.Errorf("record what images of the class are good: %w", err)
	}
	return nil
}

// showRollback keeps the condition RolledBack.
func (r *ClassReconciler) showRollback(class *awsv1.EC2NodeClass, outlook breaker.Outlook) {
	switch why := condition.Because(outlook.Reason, outlook.Message); {
	case outlook.Reason == "":
		condition.Clear(class, awsv1.ConditionRolledBack, r.Now())
	case outlook.Rolled:
		condition.SetTrueWithReason(class, awsv1.ConditionRolledBack, why, r.Now())
	default:
		condition.SetFalse(class, awsv1.ConditionRolledBack, why, r.Now())
	}
}
