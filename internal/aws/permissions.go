package aws

import (
	"context"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// surveyed is how many calls of a survey are made at a time.
const surveyed = 4

// MissingPermissions returns, sorted, the actions by which EC2 is read and that the controller may not call, found out by
// dry runs. What cannot be found out counts as allowed: whoever needs it will say what is wrong.
//
// EC2 answers each action by itself, so that after an upgrade one action that a policy of the user's lacks is named at
// the start, not by whatever first needs it.
func (c *Cloud) MissingPermissions(ctx context.Context) []string {
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
	all.SetLimit(surveyed)
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

// dry is a call as a function of nothing but its time.
func dry[In, Out any](call func(context.Context, *In, ...func(*ec2.Options)) (*Out, error), in *In) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := call(ctx, in)
		return err
	}
}
