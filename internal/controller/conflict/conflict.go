// Package conflict makes the losing of a race an ordinary outcome.
//
// Every write carries the version that was read. When somebody else was faster, nothing is wrong: the object is
// read again and the decision made anew. Only a real failure is worth an error in the log and a back-off.
package conflict

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// again leaves the cache a moment to show what the other one wrote.
const again = 100 * time.Millisecond

// Retry turns a conflict reported by r into another try, soon and without noise.
func Retry(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return result, err
	})
}
