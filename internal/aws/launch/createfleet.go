package launch

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// answer is what is known after a call.
type fleetResult struct {
	// known is false if the call may have taken effect without telling.
	known bool
	// other is true when EC2 knows the token with other parameters.
	tokenMismatch bool
	// gone is true when EC2 does not know a launch template of the request.
	templateGone bool
	// bought are the new instances, by ID; failed says what else was asked for in vain.
	instances []cloudprovider.Instance
	failures  []Failure
	// err says why there is no answer. EC2 refused the call then, or its outcome is not known.
	err error
}

// ask calls EC2, and passes on to others what the answer tells of capacity.
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

// note remembers what the failures say about capacity, and counts them: once, however many claims the call was for.
func (l *Launcher) recordFailures(failed []Failure) {
	markUnavailable(failed, l.cfg.Scarcity, l.recordReservationFailure, l.cfg.Addresses.Exhausted)
	for _, f := range failed {
		if !f.implied {
			l.cfg.Meter.LaunchFailed(f.Zone, f.ZoneID, f.CapacityType, awserrors.ReasonOf(f.Code+": "+f.Message).Code)
		}
	}
}

// rejectionFailures is what a refusal of the whole call says about offerings: where it speaks of a lack of capacity, that none of
// those that were asked for can be had. The refusal itself is the first, and of no offering.
func rejectionFailures(in *fleetCall, err error) []Failure {
	code := awserrors.Code(err)
	all := []Failure{{Code: code, Message: awserrors.Plain(err).Error(), CapacityType: in.capacityType}}
	if !awserrors.Unfulfillable(code) && code != awserrors.SpotRoleDenied {
		return all
	}
	return append(all, in.allOfferings(Failure{Code: code, CapacityType: in.capacityType, Placement: in.placement})...)
}

// attempts watches the SDK repeat a call. A refusal of the last attempt says nothing about one before it, whose answer may
// have been lost.
type attemptWatcher struct{ unknown int }

func (a *attemptWatcher) watch(o *ec2.Options) {
	watcher := middleware.FinalizeMiddlewareFunc("dovetail:attempts", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleFinalize(ctx, in)
		if err != nil && !awserrors.IsRejected(err) {
			a.unknown++
		}
		return out, metadata, err
	})
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(watcher, "Retry", middleware.After)
	})
}

// unknownOutcomeError is the error of a call whose outcome is not known.
func unknownOutcomeError(err error) error { return createError(fmt.Errorf("create fleet: %w", err)) }
