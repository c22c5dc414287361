package eventfilter

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// BackoffOptions returns those of a controller that reconciles atOnce objects in parallel, and retries a failed one with
// exponential backoff from first to longest. The default backoff retries ten times within the first five seconds, and
// after a long outage waits for up to a quarter of an hour more.
func BackoffOptions(atOnce int, first, longest time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: atOnce,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, longest),
	}
}
