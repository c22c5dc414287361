package interruption

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
)

// Standing tells people, on every NodePool, whether interruptions are heard of.
type Standing struct {
	Client client.Client
	Events *event.Recorder
	Log    *slog.Logger
	Now    func() time.Time

	// fine is true once every pool is known to say nothing of it.
	fine bool
}

// Broken says on every pool that the queue cannot be read, and why.
func (s *Standing) Broken(ctx context.Context, err error) {
	s.fine = false
	reason, message := "QueueUnreadable", err.Error()
	var unavailable *cloudprovider.UnavailableError
	if errors.As(err, &unavailable) {
		reason, message = unavailable.Reason, unavailable.Message
	}
	message += "; until then nodes are not drained before they are interrupted"
	s.report(ctx, func(pool *karpv1.NodePool) {
		condition.SetTrueWithReason(pool, karpv1.ConditionInterruptionQueueUnavailable, reason, message, s.Now())
		s.Events.WarnEvery(remindEvery, pool, karpv1.ConditionInterruptionQueueUnavailable, "%s: %s", reason, message)
	})
}

// Fine takes back what Broken has said, in this process or an earlier one.
func (s *Standing) Fine(ctx context.Context) {
	if s.fine {
		return
	}
	s.fine = s.report(ctx, func(pool *karpv1.NodePool) {
		condition.Clear(pool, karpv1.ConditionInterruptionQueueUnavailable, s.Now())
	})
}

// Blind says on every pool, by an event only, that the status of instances cannot be read: all that is lost is the time until
// other signs show.
func (s *Standing) Blind(ctx context.Context, unavailable *cloudprovider.UnavailableError) {
	s.report(ctx, func(pool *karpv1.NodePool) {
		s.Events.WarnEvery(remindEvery, pool, "InstanceStatusUnreadable", "%s", unavailable.Message)
	})
}

// report changes the conditions of every pool, and reports whether that has worked for all.
func (s *Standing) report(ctx context.Context, change func(*karpv1.NodePool)) bool {
	var pools karpv1.NodePoolList
	if err := s.Client.List(ctx, &pools); err != nil {
		s.Log.Error("saying how the interruption queue stands", "error", err)
		return false
	}
	worked := true
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) || pool.DeletionTimestamp != nil {
			continue
		}
		before := pool.DeepCopy()
		change(pool)
		if equality.Semantic.DeepEqual(before.Status, pool.Status) {
			continue
		}
		err := s.Client.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			s.Log.Debug("saying how the interruption queue stands", "NodePool", pool.Name, "error", err)
			worked = false // it is written to by others at this moment, and tried again
		}
	}
	return worked
}
