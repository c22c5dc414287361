package destroy

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// pausedRecheck is the time between two attempts of a deletion while deletions are paused.
const pausedRecheck = 15 * time.Second

// Requeue is a reconciler that waits while deletions are paused: a pause is no error, and is reported on the NodePool.
func Requeue(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		if IsPaused(err) {
			return reconcile.Result{RequeueAfter: pausedRecheck}, nil
		}
		return result, err
	})
}
