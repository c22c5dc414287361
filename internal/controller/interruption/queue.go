package interruption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
)

const (
	// pollWait sets how long a call waits for messages (the maximum of SQS), burstWait how long if more are likely in the
	// queue.
	pollWait, burstWait = 20 * time.Second, time.Second
	// maxBatch limits how many messages a call returns at most, a limit of SQS. After so many there may be more.
	maxBatch = 10
	// burstReaders sets how many calls run in parallel while there are more messages.
	burstReaders = 8
	// handleTimeout bounds the work on a message, so that it finishes before the message becomes visible again.
	handleTimeout = 15 * time.Second
	// firstRetry and lastRetry bound the backoff after the queue could not be read.
	firstRetry, lastRetry = time.Second, time.Minute
	// reportAfterFailures is after how many consecutive failures pools get the condition; fewer are usually transient.
	reportAfterFailures = 3
	// launchGracePeriod sets how long after a warning its instance may belong to a claim without a provider ID: a launch
	// takes a few seconds, and the rest allows for retries.
	launchGracePeriod = 2 * time.Minute
)

// source is a queue. A received message becomes visible again after a time, until it is deleted.
type source interface {
	Name() string
	Receive(ctx context.Context, wait time.Duration) ([]cloudprovider.Message, error)
	Delete(ctx context.Context, messages []cloudprovider.Message) (int, error)
}

// Queue handles the messages of the interruption queue.
type Queue struct {
	// Source is nil if none is configured.
	Source    source
	Actor     *Actor
	Condition *QueueCondition
	Metrics   *Metrics
	Log       *slog.Logger
	Now       func() time.Time
}

// NeedLeaderElection makes sure that only one process acts.
func (q *Queue) NeedLeaderElection() bool { return true }

// Start reads messages until ctx is done. It retries with backoff if the queue cannot be read.
func (q *Queue) Start(ctx context.Context) error {
	if q.Source == nil {
		q.Condition.SetAvailable(ctx)
		return nil
	}
	retry, failures := firstRetry, 0
	for ctx.Err() == nil {
		more, err := q.Round(ctx, pollWait)
		if err == nil && more {
			err = q.burst(ctx)
		}
		if err == nil {
			retry, failures = firstRetry, 0
			q.Metrics.Available.WithLabelValues(q.Source.Name()).Set(1)
			q.Condition.SetAvailable(ctx)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		q.Log.Error("reading the interruption queue", "queue", q.Source.Name(), "error", err, "again-in", retry.String())
		var unavailable *cloudprovider.UnavailableError
		if failures++; failures >= reportAfterFailures || errors.As(err, &unavailable) {
			q.Metrics.Available.WithLabelValues(q.Source.Name()).Set(0)
			q.Condition.SetUnavailable(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, lastRetry)
	}
	return nil
}

// burst reads in parallel until each reader has received fewer messages than a call can return.
func (q *Queue) burst(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range burstReaders {
		group.Go(func() error {
			return panics.ErrorLogged(q.Log, "interruption queue", func() error {
				for more := true; more && ctx.Err() == nil; {
					var err error
					if more, err = q.Round(ctx, burstWait); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return group.Wait()
}

// Round receives messages once, handles them, and deletes those that are handled. It reports whether there may be more.
func (q *Queue) Round(ctx context.Context, wait time.Duration) (more bool, err error) {
	messages, err := q.Source.Receive(ctx, wait)
	if err != nil {
		return false, err
	}
	handled := make([]bool, len(messages))
	var group errgroup.Group
	for i := range messages {
		group.Go(func() error {
			return panics.ErrorLogged(q.Log, "interruption message", func() error { // after a panic the message stays and becomes visible again
				handled[i] = q.process(ctx, &messages[i])
				return nil
			})
		})
	}
	_ = group.Wait() // process logs its errors
	var done []cloudprovider.Message
	for i := range messages {
		if handled[i] {
			done = append(done, messages[i])
		}
	}
	deleted, err := q.Source.Delete(ctx, done)
	q.Metrics.Deleted.Add(float64(deleted))
	return len(messages) >= maxBatch, err
}

// process handles a message, and reports whether it can be deleted.
func (q *Queue) process(ctx context.Context, m *cloudprovider.Message) bool {
	if m.Unreadable != nil {
		q.Log.Error(
			"a message of the interruption queue cannot be read and is deleted",
			"queue",
			q.Source.Name(),
			"message",
			m.ID,
			"error",
			m.Unreadable,
		)
		return true
	}
	q.Metrics.Received.WithLabelValues(string(m.Kind)).Inc()
	ctx, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	if err := q.handle(ctx, m); err != nil {
		if !errors.Is(err, errLaunching) && ctx.Err() == nil {
			q.Log.Error(
				"handling an interruption; its message will be received again",
				"queue",
				q.Source.Name(),
				"message",
				m.ID,
				"kind",
				string(m.Kind),
				"error",
				err,
			)
		}
		return false
	}
	if !m.At.IsZero() {
		q.Metrics.Latency.Observe(q.Now().Sub(m.At).Seconds())
	}
	return true
}

// errLaunching means that an instance may belong to a claim that is launching and has no provider ID yet.
var errLaunching = errors.New("the instance may belong to a claim that is being launched")

func (q *Queue) handle(ctx context.Context, m *cloudprovider.Message) error {
	r, known := ruleOf(m.Kind)
	if !known {
		return nil
	}
	var errs []error
	for _, id := range m.InstanceIDs {
		claims, err := q.Actor.claimsOf(ctx, id)
		if err == nil && len(claims) == 0 && r.deletes {
			err = q.unclaimed(ctx, m)
		}
		for i := range claims {
			if err := q.Actor.act(ctx, &claims[i], interruption{kinds: []cloudprovider.InterruptionKind{m.Kind}}); err != nil {
				errs = append(errs, fmt.Errorf("delete node claim %q: %w", claims[i].Name, err))
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unclaimed handles a warning about an instance without a claim. Usually the instance is not ours, since a queue gets
// messages about all instances of the account. But while a claim is launching, the instance may be its, and
// errLaunching keeps the message until the claim has its provider ID. Messages about instances that have stopped are
// not kept: other controllers notice that.
func (q *Queue) unclaimed(ctx context.Context, m *cloudprovider.Message) error {
	switch m.Kind {
	case cloudprovider.SpotInterrupted, cloudprovider.ReservationInterrupted, cloudprovider.ScheduledChange:
	default:
		return nil
	}
	if q.Now().Sub(m.Sent) > launchGracePeriod {
		return nil
	}
	var claims karpv1.NodeClaimList
	if err := q.Actor.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Status.ProviderID == "" && c.DeletionTimestamp == nil && awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) {
			return errLaunching
		}
	}
	return nil
}
