package eventfilter

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options are those of a controller that works on so many objects at once, and that looks at one which it has failed with again
// after first, and after twice as long each time, but never later than longest. Without that, a failure is repeated ten times
// within the first five seconds, and an object that has failed through an outage of an hour waits for up to another quarter of one
// when all is well again.
func Options(atOnce int, first, longest time.Duration) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: atOnce,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, longest),
	}
}
