package launch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// podEventsPerSecond and podEventsBurst limit the events on pods about a lack of capacity, over all claims: a batch of thousands of
// pods must not fill the API server with them. Both are Karpenter's.
const podEventsPerSecond, podEventsBurst = 5, 10

// podEvents publishes on pods why they do not get the node that was launched for them.
type podEvents struct {
	once  sync.Once
	limit flowcontrol.PassiveRateLimiter
}

// passiveClock is the clock of a Reconciler, as a rate limiter reads it.
type passiveClock func() time.Time

// Now implements clock.PassiveClock.
func (c passiveClock) Now() time.Time { return c() }

// Since implements clock.PassiveClock.
func (c passiveClock) Since(t time.Time) time.Duration { return c().Sub(t) }

// reportCapacity publishes an event on each pod that still waits for a claim that EC2 has no capacity for. Pods without an event
// without tokens get one at the next failure.
func (r *Reconciler) reportCapacity(ctx context.Context, claim *karpv1.NodeClaim, cause error) {
	nominated := claim.Nominated(karpv1.AnnotationNominatedPods)
	if len(nominated) == 0 {
		return
	}
	r.podEvents.once.Do(func() {
		r.podEvents.limit = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(podEventsPerSecond, podEventsBurst, passiveClock(r.Now))
	})
	pods, err := cmp.Or[cluster.Pods](r.Pods, cluster.ReadPods(r.Client)).List(ctx)
	if err != nil {
		r.Log.Error("pods get no event about a lack of capacity", "NodeClaim", claim.Name, "error", err)
		return
	}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" || !snapshot.Active(pod) || !slices.Contains(nominated, pod.UID) {
			continue
		}
		if !r.podEvents.limit.TryAccept() {
			return
		}
		r.Events.Warn(event.Object(pod), reasonInsufficientCapacity, "%s", capacityMessage(claim, cause))
	}
}
