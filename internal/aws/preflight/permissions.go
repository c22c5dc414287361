package preflight

import (
	"context"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// parallelism sets how many dry runs are made at a time. Four finish ten calls within about the time of three, and stay far below
// EC2's rate limits for reads.
const parallelism = 4

// MissingPermissions returns, sorted, the actions that read EC2 and that the controller may not call. It finds them by dry runs.
// An action that cannot be checked counts as allowed: the first real call reports what is wrong.
//
// Each action is checked by itself, so that a permission that a policy lacks after an upgrade is reported at the start, not by
// the first controller that needs it.
func (c *Checker) MissingPermissions(ctx context.Context) []string {
	yes := aws.Bool(true)
	calls := map[string]func(context.Context) error{
		"ec2:DescribeCapacityReservations": dry(c.ec2.DescribeCapacityReservations, &ec2.DescribeCapacityReservationsInput{DryRun: yes}),
		"ec2:DescribeImages":               dry(c.ec2.DescribeImages, &ec2.DescribeImagesInput{DryRun: yes}),
		"ec2:DescribeInstanceStatus":       dry(c.ec2.DescribeInstanceStatus, &ec2.DescribeInstanceStatusInput{DryRun: yes}),
		"ec2:DescribeInstances":            dry(c.ec2.DescribeInstances, &ec2.DescribeInstancesInput{DryRun: yes}),
		"ec2:DescribeInstanceTypeOfferings": dry(c.ec2.DescribeInstanceTypeOfferings,
			&ec2.DescribeInstanceTypeOfferingsInput{DryRun: yes}),
		"ec2:DescribeLaunchTemplates":  dry(c.ec2.DescribeLaunchTemplates, &ec2.DescribeLaunchTemplatesInput{DryRun: yes}),
		"ec2:DescribePlacementGroups":  dry(c.ec2.DescribePlacementGroups, &ec2.DescribePlacementGroupsInput{DryRun: yes}),
		"ec2:DescribeSecurityGroups":   dry(c.ec2.DescribeSecurityGroups, &ec2.DescribeSecurityGroupsInput{DryRun: yes}),
		"ec2:DescribeSpotPriceHistory": dry(c.ec2.DescribeSpotPriceHistory, &ec2.DescribeSpotPriceHistoryInput{DryRun: yes}),
		"ec2:DescribeSubnets":          dry(c.ec2.DescribeSubnets, &ec2.DescribeSubnetsInput{DryRun: yes}),
	}
	var mu sync.Mutex
	var missing []string
	var all errgroup.Group
	all.SetLimit(parallelism)
	for action, call := range calls {
		all.Go(func() error {
			if err := call(ctx); awserrors.Is(err, awserrors.Unauthorized) {
				mu.Lock()
				defer mu.Unlock()
				missing = append(missing, action)
			}
			return nil
		})
	}
	_ = all.Wait() // none of them returns an error
	slices.Sort(missing)
	return missing
}

// dry binds a call to its input.
func dry[In, Out any](call func(context.Context, *In, ...func(*ec2.Options)) (*Out, error), in *In) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := call(ctx, in)
		return err
	}
}
