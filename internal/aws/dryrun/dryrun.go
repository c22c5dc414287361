// Package dryrun finds out whether instances of a node class may be launched, by asking EC2 without effect.
//
// What EC2 says is one of three things: yes, no with a reason that a person has to do something about, or nothing, when the
// call failed for another reason. Only the first two are verdicts. A no is believed for half a minute at first, and then for twice as
// long each time, five minutes at most: a policy that has been put right is seen soon, and a wrong one costs few calls.
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

// The reasons of a no.
const (
	CreateLaunchTemplate    = "CreateLaunchTemplateAuthCheckFailed"
	CreateFleet             = "CreateFleetAuthCheckFailed"
	RunInstances            = "RunInstancesAuthCheckFailed"
	UserDataTooLarge        = "UserDataSizeLimitExceeded"
	InstanceProfileNotFound = "InstanceProfileNotFound"
)

// ErrProfileNotSeen means that EC2 does not know an instance profile that has just been made. Ask again soon.
var ErrProfileNotSeen = errors.New("EC2 does not know the instance profile yet")

// API is what is asked of EC2. The calls are not repeated when they fail: who asks again is the caller.
type API interface {
	CreateFleet(ctx context.Context, in *ec2.CreateFleetInput, optFns ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
	RunInstances(ctx context.Context, in *ec2.RunInstancesInput, optFns ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
}

// Rehearsal is what a launch would ask for.
type Rehearsal struct {
	Fleet *ec2.CreateFleetInput
	// Runs are the same instance in one subnet each.
	RunInstances []*ec2.RunInstancesInput
}

// Question is about one node class.
type Question struct {
	// Prepare makes sure of the launch template and returns what is then asked for.
	Prepare func(ctx context.Context) (Rehearsal, error)
	// UsersProfile is true if the instance profile is not one that this program has made.
	UsersProfile bool
}

// Verdict is what EC2 says. Without a Reason it is a yes.
type Verdict struct {
	Reason  string
	Message string
}

// Check asks EC2. An error is no verdict, and ErrProfileNotSeen when a new instance profile has to be waited for.
func Check(ctx context.Context, api API, q Question) (Verdict, error) {
	r, err := q.Prepare(ctx)
	switch {
	case awserrors.Is(err, awserrors.Unauthorized):
		return rejected(CreateLaunchTemplate, "ec2:CreateLaunchTemplate", err), nil
	case awserrors.Is(err, awserrors.UserDataTooLarge):
		return Verdict{UserDataTooLarge, "the user data (spec.userData and the part that the controller adds) exceeds the limit of EC2:  " + awserrors.Plain(err).Error()}, nil
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

// orNotDryRun is err; a dry run that succeeds has not been one.
func orNotDryRun(err error) error {
	return cmp.Or(err, errors.New("EC2 did not treat the call as a dry run"))
}

func rejected(reason, action string, err error) Verdict {
	hint := awserrors.ReasonOf(err.Error()).Hint
	return Verdict{reason, fmt.Sprintf("the controller is not allowed to call %s: %s: %s", action, hint, awserrors.Plain(err))}
}

// run asks for an instance in one subnet after the other, until one takes it. A no is one only if no subnet has failed to answer:
// that of which nothing is known may be the one that works.
func (q Question) runInstances(ctx context.Context, api API, runs []*ec2.RunInstancesInput) (Verdict, error) {
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
	if err := find(awserrors.Passing); err != nil {
		return Verdict{}, fmt.Errorf("dry run of RunInstances: %w", err)
	}
	if err := find(func(err error) bool { return awserrors.Is(err, awserrors.Unauthorized) }); err != nil {
		return rejected(RunInstances, "ec2:RunInstances", err), nil
	}
	err := find(func(err error) bool { return awserrors.Is(err, awserrors.InstanceProfileNotFound) })
	switch {
	case err != nil && q.UsersProfile:
		return Verdict{InstanceProfileNotFound, "spec.instanceProfile does not exist, or EC2 does not know it yet: " + awserrors.Plain(err).Error()}, nil
	case err != nil:
		return Verdict{}, fmt.Errorf("%w: %w", ErrProfileNotSeen, err)
	case len(errs) == 0:
		return Verdict{}, errors.New("dry run of RunInstances: the node class has no subnet")
	}
	return Verdict{}, fmt.Errorf("dry run of RunInstances: %w", errs[0])
}
