package instance

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// RebootAPI is the call of EC2 that Rebooter makes.
type RebootAPI interface {
	RebootInstances(ctx context.Context, in *ec2.RebootInstancesInput, optFns ...func(*ec2.Options)) (*ec2.RebootInstancesOutput, error)
}

// Rebooter reboots instances of one cluster.
type Rebooter struct {
	Instances *Instances
	EC2       RebootAPI
}

// Reboot reboots one of our instances. The error is cloudprovider.ErrNotFound when the instance is terminated or
// terminating, wraps cloudprovider.ErrRebootRefused when EC2 or the instance's owner do not allow it, and
// cloudprovider.ErrOutcomeUnknown when the call may have had its effect. EC2 has no token for the call: callers report by
// the node's boot ID whether an earlier one took effect.
//
// It needs the API server's permit, which must be for the NodeClaim that the instance's tags name.
func (r *Rebooter) Reboot(ctx context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return fmt.Errorf("reboot: %w", errors.Join(cloudprovider.ErrRebootRefused, err))
	}
	i, err := r.call(ctx, providerID, permit.Covers, false /* dryRun */)
	if err == nil {
		permit.Used(i)
	}
	return err
}

// CheckReboot checks whether Reboot would be allowed, with a dry run.
func (r *Rebooter) CheckReboot(ctx context.Context, providerID string) error {
	_, err := r.call(ctx, providerID, func(cloudprovider.Instance) error { return nil }, true /* dryRun */)
	return err
}

// call calls EC2 for one of our instances that is covered. It returns the instance as EC2 described it before.
func (r *Rebooter) call(
	ctx context.Context, providerID string, covered func(cloudprovider.Instance) error, dryRun bool,
) (cloudprovider.Instance, error) {
	i, err := r.Instances.Get(ctx, providerID)
	if err != nil {
		return i, err
	}
	if i.State == cloudprovider.ShuttingDown {
		return i, fmt.Errorf("reboot instance %s: %w", i.ID, cloudprovider.ErrNotFound)
	}
	owned, err := r.Instances.identity.Prove(identity.Instance, i.ID, i.Tags)
	if err = errors.Join(err, covered(i)); err != nil {
		return i, fmt.Errorf("reboot: %w", errors.Join(cloudprovider.ErrRebootRefused, err))
	}
	return i, r.callOwned(ctx, owned, dryRun)
}

func (r *Rebooter) callOwned(ctx context.Context, owned identity.Owned, dryRun bool) error {
	id, err := owned.ID(identity.Instance)
	if err != nil {
		return err
	}
	_, err = r.EC2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}, DryRun: aws.Bool(dryRun)})
	switch {
	case err == nil, dryRun && awserrors.Is(err, awserrors.DryRun):
		return nil
	case awserrors.Is(err, awserrors.NotFound):
		return fmt.Errorf("reboot instance %s: %w", id, errors.Join(cloudprovider.ErrNotFound, err))
	case awserrors.Is(err, awserrors.Unauthorized):
		return fmt.Errorf("reboot instance %s: %w", id, errors.Join(cloudprovider.ErrRebootRefused, awserrors.WithoutRequestIDs(err)))
	}
	if !awserrors.IsRejected(err) && !dryRun {
		err = errors.Join(cloudprovider.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("reboot instance %s: %w", id, err)
}
