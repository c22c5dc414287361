// Package placement finds the placement group that the instances of a node class go into.
//
// A group is known for a minute after EC2 has told of it. When EC2 fails, the group as it was last known is returned together
// with the error, so that a caller which only reads can go on; one that EC2 says does not exist is forgotten at once.
package placement

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
)

const (
	// believed is how long an answer is.
	believed = time.Minute
	// remembered is how long the last good answer stands in while EC2 fails.
	remembered = 24 * time.Hour
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

// API is what Finder calls of EC2.
type API interface {
	DescribePlacementGroups(ctx context.Context, in *ec2.DescribePlacementGroupsInput, optFns ...func(*ec2.Options)) (*ec2.DescribePlacementGroupsOutput, error)
}

// NotFoundError means that no group which can be used bears the name or ID that a node class gives.
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
	groups *memo.Memo[awsv1.PlacementGroupSelector, Group]
	last   *memo.Memo[awsv1.PlacementGroupSelector, Group]
}

// NewFinder returns a Finder that knows of no group.
func NewFinder(api API, now func() time.Time) *Finder {
	return &Finder{
		api:    api,
		groups: memo.New[awsv1.PlacementGroupSelector, Group](believed, now),
		last:   memo.New[awsv1.PlacementGroupSelector, Group](remembered, now),
	}
}

// Of returns the group that instances of a class go into, the zero Group if it asks for none. The error is a
// *NotFoundError when there is none to use; with any other, the group is what was last known of it, or zero.
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
		f.last.Drop(selector)
		return Group{}, &NotFoundError{Selector: selector}
	}
	if err != nil {
		known, _ := f.last.Get(selector)
		return known, fmt.Errorf("describe placement groups: %w", err)
	}
	g := out.PlacementGroups[0]
	found := Group{
		ID: aws.ToString(g.GroupId), Name: aws.ToString(g.GroupName), Strategy: string(g.Strategy), Partitions: int(aws.ToInt32(g.PartitionCount)),
	}
	f.groups.Put(selector, found)
	f.last.Put(selector, found)
	return found, nil
}

func query(selector awsv1.PlacementGroupSelector) *ec2.DescribePlacementGroupsInput {
	in := &ec2.DescribePlacementGroupsInput{Filters: []ec2types.Filter{network.Filter("state", string(ec2types.PlacementGroupStateAvailable))}}
	if selector.ID != "" {
		in.GroupIds = []string{selector.ID}
	} else {
		in.GroupNames = []string{selector.Name}
	}
	return in
}

// unknown reports whether EC2 says that it has no such group: it does so with an error, not with an empty list.
func unknown(err error) bool {
	return err != nil && slices.Contains([]string{"InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.Malformed"}, awserrors.Code(err))
}
