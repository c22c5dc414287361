package aws

import (
	"context"
	"errors"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// placementGroup finds the group that the class asks for. Its ID is not part of the status: it is looked up when something is
// launched, and what the condition says is that it can be.
func (r *resolver) placementGroup(ctx context.Context) {
	const condition = awsv1.ConditionPlacementGroupReady
	_, err := r.cloud.groups.Of(ctx, r.class)
	var none *placement.NotFoundError
	switch {
	case errors.As(err, &none):
		r.set(condition, metav1.ConditionFalse, "PlacementGroupNotFound", err.Error(), soon)
	case err != nil && !awserrors.Passing(err):
		r.set(condition, metav1.ConditionFalse, "PlacementGroupResolutionFailed", awserrors.Plain(err).Error(), soon)
		r.failed(err)
	case err != nil:
		r.failed(err)
	case r.class.Spec.PlacementGroupSelector != nil:
		r.ready(condition, soon)
	default:
		r.ready(condition, validatedAgain)
	}
}

// groupToLaunchInto is the placement group for new instances of a class. While EC2 fails the last known one does: one that has
// gone meanwhile EC2 refuses. Without any, nothing may be launched. Errors are those of package cloud.
func (c *Cloud) groupToLaunchInto(ctx context.Context, class *awsv1.EC2NodeClass) (placement.Group, error) {
	group, err := c.groups.Of(ctx, class)
	var none *placement.NotFoundError
	switch {
	case errors.As(err, &none):
		return group, &cloudprovider.NodeClassNotReadyError{Err: err}
	case err != nil && group == placement.Group{}:
		return group, &cloudprovider.CreateError{Reason: "PlacementGroupResolutionFailed", Message: awserrors.Plain(err).Error(), Err: err}
	}
	return group, nil
}

// Partition is the partition of its placement group that an instance is in, as a label has it; empty while EC2 does not say.
func (c *Cloud) Partition(ctx context.Context, providerID string) (string, error) {
	i, err := c.instances.Get(ctx, providerID)
	if err != nil || i.Placement.Partition == 0 {
		return "", awserrors.Plain(err)
	}
	return strconv.Itoa(i.Placement.Partition), nil
}
