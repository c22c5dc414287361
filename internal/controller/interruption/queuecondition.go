package interruption

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// QueueCondition reports on every NodePool whether the interruption queue can be read.
type QueueCondition struct {
	Client client.Client
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time

	// clear is true once the condition is known to be cleared on every pool.
	clear bool
}

// SetUnavailable sets the condition on every pool, with the reason why the queue cannot be read.
func (s *QueueCondition) SetUnavailable(ctx context.Context, err error) {
	s.clear = false
	reason, message := "QueueUnreadable", err.Error()
	var unavailable *cloudprovider.UnavailableError
	if errors.As(err, &unavailable) {
		reason, message = unavailable.Reason, unavailable.Message
	}
	message += "; until this is corrected, nodes are not drained before they are interrupted"
	s.updatePools(ctx, func(pool *karpv1.NodePool) {
		condition.SetTrueWithReason(pool, karpv1.ConditionInterruptionQueueUnavailable, condition.Because(reason, message), s.Now())
		s.Events.WarnEvery(eventInterval, pool, karpv1.ConditionInterruptionQueueUnavailable, "%s: %s", reason, message)
	})
}

// SetAvailable clears the condition on every pool, also if an earlier process has set it.
func (s *QueueCondition) SetAvailable(ctx context.Context) {
	if s.clear {
		return
	}
	s.clear = s.updatePools(ctx, func(pool *karpv1.NodePool) {
		condition.Clear(pool, karpv1.ConditionInterruptionQueueUnavailable, s.Now())
	})
}

// WarnStatusUnreadable publishes an event on every pool that the status of instances cannot be read. It sets no
// condition: other signs show an unhealthy instance as well, only later.
func (s *QueueCondition) WarnStatusUnreadable(ctx context.Context, unavailable *cloudprovider.UnavailableError) {
	s.updatePools(ctx, func(pool *karpv1.NodePool) {
		s.Events.WarnEvery(eventInterval, pool, "InstanceStatusUnreadable", "%s", unavailable.Message)
	})
}

// updatePools changes the conditions of every pool, and reports whether all writes succeeded.
func (s *QueueCondition) updatePools(ctx context.Context, change func(*karpv1.NodePool)) bool {
	var pools karpv1.NodePoolList
	if err := s.Client.List(ctx, &pools); err != nil {
		s.Log.Error("updating the condition InterruptionQueueUnavailable", "error", err)
		return false
	}
	ok := true
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) || pool.DeletionTimestamp != nil {
			continue
		}
		_, err := patch.Status(ctx, s.Client, pool, func() { change(pool) })
		if client.IgnoreNotFound(err) != nil {
			s.Log.Debug("updating the condition InterruptionQueueUnavailable", "NodePool", pool.Name, "error", err)
			ok = false // most likely a conflict; the next call tries again
		}
	}
	return ok
}
