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
	// pollWait is how long a call waits for a message, burstWait where more are known to be there.
	pollWait, burstWait = 20 * time.Second, time.Second
	// full is the number of messages of a call that may have left more behind.
	full = 10
	// readers is how many calls are made side by side while there is more.
	readers = 8
	// handleWithin bounds the work on a message, so that it ends before the queue hands the message out again.
	handleWithin = 15 * time.Second
	// firstRetry and lastRetry are the pauses after a queue could not be read.
	firstRetry, lastRetry = time.Second, time.Minute
	// worthTelling is how many failures in a row people are told of; others pass by themselves.
	worthTelling = 3
	// launchShows is how long after a warning the claim of its instance may still be without its name.
	launchShows = 2 * time.Minute
)

// source is a queue. What it has handed out it hands out again, after a time, until it is deleted.
type source interface {
	Name() string
	Receive(ctx context.Context, wait time.Duration) ([]cloudprovider.Message, error)
	Delete(ctx context.Context, messages []cloudprovider.Message) (int, error)
}

// Queue follows what the cloud says in a queue.
type Queue struct {
	// Source is nil if none is configured.
	Source   source
	Actor    *Actor
	Standing *Standing
	Metrics  *Metrics
	Log      *slog.Logger
	Now      func() time.Time
}

// NeedLeaderElection makes sure that only one process acts.
func (q *Queue) NeedLeaderElection() bool { return true }

// Start reads until ctx ends. A queue that cannot be read is tried again, ever more seldom, and never ends the process.
func (q *Queue) Start(ctx context.Context) error {
	if q.Source == nil {
		q.Standing.Fine(ctx)
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
			q.Standing.Fine(ctx)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		q.Log.Error("reading the interruption queue", "queue", q.Source.Name(), "error", err, "again-in", retry.String())
		var unavailable *cloudprovider.UnavailableError
		if failures++; failures >= worthTelling || errors.As(err, &unavailable) {
			q.Metrics.Available.WithLabelValues(q.Source.Name()).Set(0)
			q.Standing.Broken(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, lastRetry)
	}
	return nil
}

// burst reads side by side until everybody has found less than there could be.
func (q *Queue) burst(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range readers {
		group.Go(func() error {
			return panics.Logged(q.Log, "interruption queue", func() error {
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

// Round receives messages once, does what they call for, and deletes those for which that is done. It reports whether there
// may be more.
func (q *Queue) Round(ctx context.Context, wait time.Duration) (more bool, err error) {
	messages, err := q.Source.Receive(ctx, wait)
	if err != nil {
		return false, err
	}
	settled := make([]bool, len(messages))
	var group errgroup.Group
	for i := range messages {
		group.Go(func() error {
			return panics.Logged(q.Log, "interruption message", func() error { // the message stays, and comes again
				settled[i] = q.settle(ctx, &messages[i])
				return nil
			})
		})
	}
	_ = group.Wait() // settle logs its errors: the message stays, and nobody waits for it
	var done []cloudprovider.Message
	for i := range messages {
		if settled[i] {
			done = append(done, messages[i])
		}
	}
	deleted, err := q.Source.Delete(ctx, done)
	q.Metrics.Deleted.Add(float64(deleted))
	return len(messages) >= full, err
}

// settle does what a message calls for, and reports whether the message is done with.
func (q *Queue) settle(ctx context.Context, m *cloudprovider.Message) bool {
	if m.Unreadable != nil {
		q.Log.Error("a message of the interruption queue cannot be read and is deleted", "queue", q.Source.Name(), "message", m.ID, "error", m.Unreadable)
		return true
	}
	q.Metrics.Received.WithLabelValues(string(m.Kind)).Inc()
	ctx, cancel := context.WithTimeout(ctx, handleWithin)
	defer cancel()
	if err := q.handle(ctx, m); err != nil {
		if !errors.Is(err, errLaunching) && ctx.Err() == nil {
			q.Log.Error("acting on an interruption; its message comes again", "queue", q.Source.Name(), "message", m.ID, "kind", string(m.Kind), "error", err)
		}
		return false
	}
	if !m.At.IsZero() {
		q.Metrics.Latency.Observe(q.Now().Sub(m.At).Seconds())
	}
	return true
}

// errLaunching means that an instance may be one that is just being launched, whose claim does not name it yet.
var errLaunching = errors.New("the instance may belong to a claim that is being launched")

func (q *Queue) handle(ctx context.Context, m *cloudprovider.Message) error {
	r, known := ruleOf(m.Kind)
	if !known {
		return nil
	}
	var errs []error
	for _, id := range m.InstanceIDs {
		claims, err := q.Actor.claimsOf(ctx, id)
		if err == nil && len(claims) == 0 && r.ends {
			err = q.nobodys(ctx, m)
		}
		for i := range claims {
			if err := q.Actor.act(ctx, &claims[i], interruption{kinds: []cloudprovider.InterruptionKind{m.Kind}}); err != nil {
				errs = append(errs, fmt.Errorf("end node claim %q: %w", claims[i].Name, err))
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// nobodys decides what becomes of a warning about an instance that no claim names: it is another's, as a rule, for a queue is
// told of all instances of the account. While a claim is being launched it may be that one's, and the message stays until
// the claim says which instance it has. What tells of an end that others see as well is not kept.
func (q *Queue) nobodys(ctx context.Context, m *cloudprovider.Message) error {
	switch m.Kind {
	case cloudprovider.SpotInterrupted, cloudprovider.ReservationInterrupted, cloudprovider.ScheduledChange:
	default:
		return nil
	}
	if q.Now().Sub(m.Sent) > launchShows {
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
