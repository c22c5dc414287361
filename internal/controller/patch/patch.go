// Package patch makes the losing of a race an ordinary outcome.
//
// Every write carries the version that was read. When somebody else was faster, nothing is wrong: the object is
// read again and the decision made anew. Only a real failure is worth an error in the log and a back-off.
package patch

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// again leaves the cache a moment to show what the other one wrote; longest is how long it is given that it lags. Each attempt
// that comes before it shows is a write for nothing, for which the API server reads and patches the object before it refuses: a
// cluster that is slow already must not get more of them than a fast one.
const again, longest = 100 * time.Millisecond, 5 * time.Second

// Retry turns a conflict reported by r into another try, without noise: soon, and after each further conflict over the same object
// twice as late.
func Retry(r reconcile.Reconciler) reconcile.Reconciler {
	wait := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](again, longest)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: wait.When(req)}, nil
		}
		wait.Forget(req)
		return result, err
	})
}
