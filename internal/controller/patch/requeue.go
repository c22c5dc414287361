package patch

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// The delays after a conflict. The cache usually shows the other writer's change within the first; the last one is for
// a cache that lags. An attempt before the cache shows the change is wasted, and the API server reads and patches the
// object before it refuses: a cluster that is slow already must not get more such writes than a fast one.
const (
	firstDelay = 100 * time.Millisecond
	maxDelay   = 5 * time.Second
)

// The delays while the process does not know yet what it has to read of the cloud. The last one is for clusters of thousands of nodes, of
// which each has a request that waits.
const (
	firstStartDelay = time.Second
	maxStartDelay   = 15 * time.Second
)

// RequeueOnConflict makes a reconciler that requeues a request when r reports a conflict, without an error. The delay doubles with
// each further conflict over the same object. A request that waits for the cloud, a cloudprovider.ErrNotKnownYet, is requeued, too: the
// process logs by itself what it waits for.
func RequeueOnConflict(r reconcile.Reconciler) reconcile.Reconciler {
	starting := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstStartDelay, maxStartDelay)
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstDelay, maxDelay)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: delays.When(req)}, nil
		}
		delays.Forget(req)
		if errors.Is(err, cloudprovider.ErrNotKnownYet) {
			return reconcile.Result{RequeueAfter: starting.When(req)}, nil
		}
		starting.Forget(req)
		return result, err
	})
}
