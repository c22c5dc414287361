package interruption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
)

const (
	// statusInterval sets how often the status of instances is read: EC2 runs its checks every minute. deniedInterval is
	// the pause after AWS denied the call, which only a person can change.
	statusInterval, deniedInterval = time.Minute, 10 * time.Minute
	// maxParallelDeletions limits how many claims are handled in parallel: each takes a few sequential calls of the API
	// server.
	maxParallelDeletions = 10
)

// statusReader reads which instances are unhealthy.
type statusReader interface {
	Ailments(ctx context.Context) ([]cloudprovider.Impairment, error)
}

// Status deletes NodeClaims with instances that fail their status checks, or that EC2 has scheduled for a stop.
type Status struct {
	Instances statusReader
	Actor     *Actor
	Condition *QueueCondition
	Metrics   *Metrics
	Log       *slog.Logger

	// counted are the ailments that the metric has counted, until they are over.
	counted map[ailment]bool
}

type ailment struct {
	instance string
	kind     cloudprovider.InterruptionKind
}

// NeedLeaderElection makes sure that only one process acts.
func (s *Status) NeedLeaderElection() bool { return true }

// Start reads the status every minute until ctx is done.
func (s *Status) Start(ctx context.Context) error {
	for {
		wait := statusInterval
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("reading the status of instances", "error", err)
			var unavailable *cloudprovider.UnavailableError
			if errors.As(err, &unavailable) {
				wait = deniedInterval
				s.Condition.WarnStatusUnreadable(ctx, unavailable)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// affectedClaim is a claim with an unhealthy instance.
type affectedClaim struct {
	claim   *karpv1.NodeClaim
	ailment cloudprovider.Impairment
}

// Pass reads the status of instances once.
func (s *Status) Pass(ctx context.Context) error {
	ailments, err := s.Instances.Ailments(ctx)
	if err != nil {
		return err
	}
	var affected []affectedClaim
	for _, a := range ailments {
		claims, err := s.Actor.claimsOf(ctx, a.InstanceID)
		if err != nil {
			return err
		}
		for i := range claims {
			if condition.IsTrue(&claims[i], karpv1.ConditionRebooting) {
				continue // its status checks fail until it has booted; the reboot has a deadline of its own
			}
			affected = append(affected, affectedClaim{&claims[i], a})
		}
	}
	lasting := map[ailment]bool{}
	for _, p := range affected {
		s.count(p.ailment, lasting)
	}
	s.counted = lasting
	affected, err = s.limit(ctx, affected)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(maxParallelDeletions)
	for _, p := range affected {
		group.Go(func() error {
			return panics.ErrorLogged(s.Log, "status check", func() error { return s.handle(ctx, p.claim, p.ailment) })
		})
	}
	return group.Wait()
}

// count counts new ailments.
func (s *Status) count(a cloudprovider.Impairment, lasting map[ailment]bool) {
	for _, kind := range a.Kinds {
		key := ailment{a.InstanceID, kind}
		if !s.counted[key] && !lasting[key] {
			s.Metrics.Unhealthy.WithLabelValues(category(kind)).Inc()
		}
		lasting[key] = true
	}
}

func (s *Status) handle(ctx context.Context, claim *karpv1.NodeClaim, a cloudprovider.Impairment) error {
	if err := s.Actor.act(ctx, claim, interruption{kinds: a.Kinds, detail: a.Seen}); err != nil {
		return fmt.Errorf("delete node claim %q of instance %s: %w", claim.Name, a.InstanceID, err)
	}
	return nil
}

// category is the name of a kind in the metric.
func category(kind cloudprovider.InterruptionKind) string {
	switch kind {
	case cloudprovider.InstanceStatusFailed:
		return "InstanceStatus"
	case cloudprovider.SystemStatusFailed:
		return "SystemStatus"
	default:
		return "EventStatus"
	}
}
