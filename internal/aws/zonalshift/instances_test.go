package zonalshift

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
)

// slowEC2 is EC2 with one instance, which takes a second to list.
type slowEC2 struct {
	instance.API
	lists, atOnce, mostAtOnce atomic.Int32
}

func (e *slowEC2) DescribeInstances(
	context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	e.lists.Add(1)
	e.mostAtOnce.Store(max(e.mostAtOnce.Load(), e.atOnce.Add(1)))
	defer e.atOnce.Add(-1)
	time.Sleep(time.Second)
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: []ec2types.Instance{
		{InstanceId: awssdk.String("i-1"), Placement: &ec2types.Placement{AvailabilityZone: awssdk.String("us-east-1a")}},
	}}}}, nil
}

// A dozen loops want the instances at the start. Those who want a recent listing share one, and no two are made at once.
func TestListingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, leading := &slowEC2{}, make(chan struct{})
		close(leading)
		s := NewInstances(instance.New(instance.Config{
			EC2: api, Leading: leading, Now: time.Now, Window: batch.Window{Idle: time.Nanosecond, Max: time.Second, Items: 1},
		}), nil, nil, time.Now)
		together := func(n int, list func() (int, error)) {
			var group sync.WaitGroup
			for range n {
				group.Go(func() {
					if found, err := list(); err != nil || found != 1 {
						t.Errorf("%d instances, %v", found, err)
					}
				})
			}
			group.Wait()
		}
		recent := func() (int, error) {
			found, err := s.Recent(t.Context(), time.Minute)
			return len(found), err
		}
		together(5, recent)
		if got := api.lists.Load(); got != 1 {
			t.Errorf("%d listings for five who want a recent one", got)
		}
		time.Sleep(2 * time.Minute)
		together(5, recent)
		together(3, func() (int, error) {
			found, err := s.List(t.Context())
			return len(found), err
		})
		if got := api.lists.Load(); got != 1+1+3 {
			t.Errorf("%d listings, want one for each who wants a new one, and one more", got)
		}
		if got := api.mostAtOnce.Load(); got != 1 {
			t.Errorf("%d listings at once", got)
		}
	})
}
