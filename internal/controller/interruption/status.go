package interruption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
)

const (
	// lookEvery is how often instances are asked after; lookAgain how long nobody asks where that is not allowed.
	lookEvery, lookAgain = time.Minute, 10 * time.Minute
	// abreast is how many claims are ended side by side.
	abreast = 10
)

// clinic knows which instances are not well.
type clinic interface {
	Ailments(ctx context.Context) ([]cloudprovider.Ailment, error)
}

// Status ends NodeClaims whose instances have fallen ill, or will be stopped by EC2.
type Status struct {
	Clinic   clinic
	Actor    *Actor
	Standing *Standing
	Metrics  *Metrics
	Log      *slog.Logger

	// counted are the ailments that were counted, until they are over.
	counted map[ailment]bool
}

type ailment struct {
	instance string
	kind     cloudprovider.InterruptionKind
}

// NeedLeaderElection makes sure that only one process acts.
func (s *Status) NeedLeaderElection() bool { return true }

// Start looks every minute until ctx ends.
func (s *Status) Start(ctx context.Context) error {
	for {
		wait := lookEvery
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("asking after the status of instances", "error", err)
			var unavailable *cloudprovider.UnavailableError
			if errors.As(err, &unavailable) {
				wait = lookAgain
				s.Standing.Blind(ctx, unavailable)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// patient is a claim with an instance that is not well.
type patient struct {
	claim   *karpv1.NodeClaim
	ailment cloudprovider.Ailment
}

// Pass reads the status of instances once.
func (s *Status) Pass(ctx context.Context) error {
	ailments, err := s.Clinic.Ailments(ctx)
	if err != nil {
		return err
	}
	var patients []patient
	for _, a := range ailments {
		claims, err := s.Actor.claimsOf(ctx, a.InstanceID)
		if err != nil {
			return err
		}
		for i := range claims {
			patients = append(patients, patient{&claims[i], a})
		}
	}
	lasting := map[ailment]bool{}
	for _, p := range patients {
		s.count(p.ailment, lasting)
	}
	s.counted = lasting
	patients, err = s.limit(ctx, patients)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(abreast)
	for _, p := range patients {
		group.Go(func() error {
			return panics.Logged(s.Log, "status check", func() error { return s.treat(ctx, p.claim, p.ailment) })
		})
	}
	return group.Wait()
}

// count counts what is new.
func (s *Status) count(a cloudprovider.Ailment, lasting map[ailment]bool) {
	for _, kind := range a.Kinds {
		key := ailment{a.InstanceID, kind}
		if !s.counted[key] && !lasting[key] {
			s.Metrics.Unhealthy.WithLabelValues(category(kind)).Inc()
		}
		lasting[key] = true
	}
}

func (s *Status) treat(ctx context.Context, claim *karpv1.NodeClaim, a cloudprovider.Ailment) error {
	if err := s.Actor.act(ctx, claim, interruption{kinds: a.Kinds, detail: a.Seen}); err != nil {
		return fmt.Errorf("end node claim %q of instance %s: %w", claim.Name, a.InstanceID, err)
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
