// Package dryrun validates that instances of a node class can be launched, with EC2 calls that have no effect.
//
// EC2's answer is one of three: allowed, rejected with a reason that a person must fix, or unknown when the call failed
// for another reason. Only the first two are verdicts. A rejection is used for half a minute at first, and then twice
// as long each time, up to five minutes: so a fixed policy is noticed soon, and a wrong one costs few calls.
package dryrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// The reasons of a rejection.
const (
	CreateLaunchTemplate    = "CreateLaunchTemplateAuthCheckFailed"
	CreateFleet             = "CreateFleetAuthCheckFailed"
	RunInstances            = "RunInstancesAuthCheckFailed"
	UserDataTooLarge        = "UserDataSizeLimitExceeded"
	InstanceProfileNotFound = "InstanceProfileNotFound"
)

// ErrProfileNotSeen means that EC2 does not know a new instance profile yet. Retry soon.
var ErrProfileNotSeen = errors.New("EC2 does not know the instance profile yet")

// API is the calls of EC2 that a validation makes. Failed calls are not retried here; the caller retries.
type API interface {
	CreateFleet(ctx context.Context, in *ec2.CreateFleetInput, optFns ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
	RunInstances(ctx context.Context, in *ec2.RunInstancesInput, optFns ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
}

// Requests are the calls of a launch.
type Requests struct {
	Fleet *ec2.CreateFleetInput
	// RunInstances requests the same instance in one subnet each.
	RunInstances []*ec2.RunInstancesInput
}

// Validation is the dry-run validation of one node class.
type Validation struct {
	// Prepare ensures the launch template and returns the calls.
	Prepare func(ctx context.Context) (Requests, error)
	// UserManagedProfile is true if the instance profile was not created by this program.
	UserManagedProfile bool
}

// Verdict is the result of a validation. Without a Reason the launch is allowed.
type Verdict struct {
	Reason  string
	Message string
}

// Validate makes the calls. An error is no verdict; it is ErrProfileNotSeen while a new instance profile is not
// visible.
func Validate(ctx context.Context, api API, q Validation) (Verdict, error) {
	r, err := q.Prepare(ctx)
	switch {
	case awserrors.Is(err, awserrors.Unauthorized):
		return rejected(CreateLaunchTemplate, "ec2:CreateLaunchTemplate", err), nil
	case awserrors.Is(err, awserrors.UserDataTooLarge):
		return Verdict{
			UserDataTooLarge,
			"the user data (spec.userData and the part that the controller adds) exceeds the limit of EC2:  " + awserrors.WithoutRequestIDs(
				err,
			).Error(),
		}, nil
	case err != nil:
		return Verdict{}, err
	}
	r.Fleet.DryRun = aws.Bool(true)
	_, err = api.CreateFleet(ctx, r.Fleet, withoutRetries)
	switch {
	case awserrors.Is(err, awserrors.Unauthorized):
		return rejected(CreateFleet, "ec2:CreateFleet", err), nil
	case !awserrors.Is(err, awserrors.DryRun):
		return Verdict{}, fmt.Errorf("dry run of CreateFleet: %w", orNotDryRun(err))
	}
	return q.runInstances(ctx, api, r.RunInstances)
}

func withoutRetries(o *ec2.Options) { o.Retryer = aws.NopRetryer{} }

// orNotDryRun returns err, or an error for a dry run that succeeded: then it was not one.
func orNotDryRun(err error) error {
	return cmp.Or(err, errors.New("EC2 did not treat the call as a dry run"))
}

func rejected(reason, action string, err error) Verdict {
	hint := awserrors.ReasonOf(err.Error()).Hint
	return Verdict{reason, fmt.Sprintf("the controller is not allowed to call %s: %s: %s", action, hint, awserrors.WithoutRequestIDs(err))}
}

// runInstances requests an instance in one subnet after another, until one is allowed. It is rejected only if all
// subnets have answered: a subnet without an answer may be the one that works.
func (q Validation) runInstances(ctx context.Context, api API, runs []*ec2.RunInstancesInput) (Verdict, error) {
	var errs []error
	for _, in := range runs {
		in.DryRun = aws.Bool(true)
		_, err := api.RunInstances(ctx, in, withoutRetries)
		if awserrors.Is(err, awserrors.DryRun) {
			return Verdict{}, nil
		}
		errs = append(errs, orNotDryRun(err))
		if ctx.Err() != nil {
			break
		}
	}
	find := func(is func(error) bool) error {
		if n := slices.IndexFunc(errs, is); n >= 0 {
			return errs[n]
		}
		return nil
	}
	if err := find(awserrors.IsRetryable); err != nil {
		return Verdict{}, fmt.Errorf("dry run of RunInstances: %w", err)
	}
	if err := find(func(err error) bool { return awserrors.Is(err, awserrors.Unauthorized) }); err != nil {
		return rejected(RunInstances, "ec2:RunInstances", err), nil
	}
	err := find(func(err error) bool { return awserrors.Is(err, awserrors.InstanceProfileNotFound) })
	switch {
	case err != nil && q.UserManagedProfile:
		return Verdict{
			InstanceProfileNotFound,
			"spec.instanceProfile does not exist, or EC2 does not know it yet: " + awserrors.WithoutRequestIDs(err).Error(),
		}, nil
	case err != nil:
		return Verdict{}, fmt.Errorf("%w: %w", ErrProfileNotSeen, err)
	case len(errs) == 0:
		return Verdict{}, errors.New("dry run of RunInstances: the node class has no subnet")
	}
	return Verdict{}, fmt.Errorf("dry run of RunInstances: %w", errs[0])
}
