package launch

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// fleetResult describes what is known after a CreateFleet call.
type fleetResult struct {
	// known is false if the call may have taken effect without a response.
	known bool
	// tokenMismatch is true when EC2 knows the token with other parameters.
	tokenMismatch bool
	// templateGone is true when EC2 does not know a launch template of the request.
	templateGone bool
	// instances are the new instances, by ID; failures are the errors of the other requested offerings.
	instances []cloudprovider.Instance
	failures  []Failure
	// err is set when there is no response: EC2 rejected the call, or its outcome is unknown.
	err error
}

// createFleet calls EC2, and records what the response shows about capacity.
func (l *Launcher) createFleet(ctx context.Context, in *fleetCall) fleetResult {
	var tries attemptWatcher
	out, err := l.cfg.EC2.CreateFleet(ctx, in.CreateFleetInput, tries.watch)
	switch {
	case awserrors.Is(err, awserrors.TokenMismatch):
		return fleetResult{tokenMismatch: true, err: err}
	case err != nil && (!awserrors.IsRejected(err) || tries.unknown > 0):
		return fleetResult{err: err}
	case err != nil:
		refused := rejectionFailures(in, err)
		l.recordFailures(refused)
		return fleetResult{known: true, templateGone: awserrors.Is(err, awserrors.LaunchTemplateNotFound), failures: refused, err: err}
	}
	a := fleetResult{known: true, instances: instancesOf(in, out), failures: failures(in, out)}
	l.recordFailures(a.failures)
	for _, i := range a.instances {
		if i.Reservation.ID != "" && l.cfg.Reservations != nil {
			l.cfg.Reservations.Launched(i.Reservation.ID)
		}
	}
	return a
}

// recordFailures marks unavailable offerings and counts the failures, once per call.
func (l *Launcher) recordFailures(failed []Failure) {
	markUnavailable(failed, l.cfg.UnavailableOfferings, l.recordReservationFailure, l.cfg.Addresses.Exhausted)
	for _, f := range failed {
		if !f.implied {
			l.cfg.Meter.LaunchFailed(f.Zone, f.ZoneID, f.CapacityType, awserrors.ReasonOf(f.Code+": "+f.Message).Code)
		}
	}
}

// rejectionFailures turns the rejection of a whole call into failures of its offerings: if EC2 lacked capacity, all of
// them are unavailable. The rejection itself comes first, without an offering.
func rejectionFailures(in *fleetCall, err error) []Failure {
	code := awserrors.Code(err)
	all := []Failure{{Code: code, Message: awserrors.WithoutRequestIDs(err).Error(), CapacityType: in.capacityType}}
	if !awserrors.Unfulfillable(code) && code != awserrors.SpotRoleDenied {
		return all
	}
	return append(all, in.allOfferings(Failure{Code: code, CapacityType: in.capacityType, Placement: in.placement})...)
}

// attemptWatcher counts the attempts of the SDK with an unknown outcome. A rejected last attempt shows nothing about an
// earlier attempt with a lost response.
type attemptWatcher struct{ unknown int }

func (a *attemptWatcher) watch(o *ec2.Options) {
	watcher := middleware.FinalizeMiddlewareFunc(
		"dovetail:attempts",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput,
			middleware.Metadata, error,
		) {
			out, metadata, err := next.HandleFinalize(ctx, in)
			if err != nil && !awserrors.IsRejected(err) {
				a.unknown++
			}
			return out, metadata, err
		},
	)
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(watcher, "Retry", middleware.After)
	})
}

// unknownOutcomeError is the error of a call with an unknown outcome.
func unknownOutcomeError(err error) error { return createError(fmt.Errorf("create fleet: %w", err)) }
