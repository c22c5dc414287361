// Package placement finds the placement group that the instances of a node class go into.
//
// A group is cached for a minute. When EC2 fails, Of returns the group as it was last known together with the error, so that a
// caller that only reads can continue. A group that EC2 reports as unknown is dropped at once.
package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// cacheTTL sets how long an answer is used without a new call: a group that is created or deleted is noticed within it, and a
	// burst of launches makes one call.
	cacheTTL = time.Minute
	// staleTTL sets how long the last good answer stands in while EC2 fails. Groups rarely change, and EC2 itself rejects a launch
	// into one that is gone, so that a day is safe.
	staleTTL = 24 * time.Hour
)

// Strategies of a placement group.
const (
	Cluster   = "cluster"
	Partition = "partition"
	Spread    = "spread"
)

// Group is a placement group. The zero value is none.
type Group struct {
	ID       string
	Name     string
	Strategy string
	// Partitions is their number for the strategy partition, else 0. They are numbered from 1.
	Partitions int
}

// API describes what Finder calls of EC2.
type API interface {
	DescribePlacementGroups(
		ctx context.Context,
		in *ec2.DescribePlacementGroupsInput,
		optFns ...func(*ec2.Options),
	) (*ec2.DescribePlacementGroupsOutput, error)
}

// NotFoundError means that no available group has the name or ID that a node class selects.
type NotFoundError struct{ Selector awsv1.PlacementGroupSelector }

func (e *NotFoundError) Error() string {
	if e.Selector.ID != "" {
		return fmt.Sprintf("there is no available placement group with ID %q", e.Selector.ID)
	}
	return fmt.Sprintf("there is no available placement group named %q", e.Selector.Name)
}

// Finder looks up groups. It is safe for concurrent use.
type Finder struct {
	api    API
	groups *ttlcache.Cache[awsv1.PlacementGroupSelector, Group]
	last   *ttlcache.Cache[awsv1.PlacementGroupSelector, Group]
}

// NewFinder returns a Finder that knows of no group.
func NewFinder(api API, now func() time.Time) *Finder {
	return &Finder{
		api:    api,
		groups: ttlcache.New[awsv1.PlacementGroupSelector, Group](cacheTTL, now),
		last:   ttlcache.New[awsv1.PlacementGroupSelector, Group](staleTTL, now),
	}
}

// Of returns the group that instances of a class go into, the zero Group if the class selects none. The error is a
// *NotFoundError when no such group is available; with any other error, the group is the last known one, or zero.
func (f *Finder) Of(ctx context.Context, class *awsv1.EC2NodeClass) (Group, error) {
	if class.Spec.PlacementGroupSelector == nil {
		return Group{}, nil
	}
	selector := *class.Spec.PlacementGroupSelector
	if found, ok := f.groups.Get(selector); ok {
		return found, nil
	}
	out, err := f.api.DescribePlacementGroups(ctx, query(selector))
	if unknown(err) || err == nil && len(out.PlacementGroups) == 0 {
		f.last.Delete(selector)
		return Group{}, &NotFoundError{Selector: selector}
	}
	if err != nil {
		known, _ := f.last.Get(selector)
		return known, fmt.Errorf("describe placement groups: %w", err)
	}
	g := out.PlacementGroups[0]
	found := Group{
		ID: aws.ToString(
			g.GroupId,
		), Name: aws.ToString(g.GroupName), Strategy: string(g.Strategy), Partitions: int(aws.ToInt32(g.PartitionCount)),
	}
	f.groups.Set(selector, found)
	f.last.Set(selector, found)
	return found, nil
}

// ForLaunch is Of for new instances. While EC2 fails, the last known group is good enough: EC2 itself rejects one that is gone.
// Without any, nothing may be launched. Errors are those of package cloudprovider.
func (f *Finder) ForLaunch(ctx context.Context, class *awsv1.EC2NodeClass) (Group, error) {
	group, err := f.Of(ctx, class)
	var none *NotFoundError
	switch {
	case errors.As(err, &none):
		return group, &cloudprovider.NodeClassNotReadyError{Err: err}
	case err != nil && group == Group{}:
		return group, &cloudprovider.CreateError{
			Reason:  "PlacementGroupResolutionFailed",
			Message: awserrors.WithoutRequestIDs(err).Error(),
			Err:     err,
		}
	}
	return group, nil
}

func query(selector awsv1.PlacementGroupSelector) *ec2.DescribePlacementGroupsInput {
	in := &ec2.DescribePlacementGroupsInput{
		Filters: []ec2types.Filter{network.Filter("state", string(ec2types.PlacementGroupStateAvailable))},
	}
	if selector.ID != "" {
		in.GroupIds = []string{selector.ID}
	} else {
		in.GroupNames = []string{selector.Name}
	}
	return in
}

// unknown reports whether an error means that EC2 has no such group: EC2 returns an error then, not an empty list.
func unknown(err error) bool {
	return err != nil &&
		slices.Contains([]string{"InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.Malformed"}, awserrors.Code(err))
}
