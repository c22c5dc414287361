package instance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// reservedEC2 has one instance in reservation cr-1. EC2 need not state the reservation of a terminated instance.
type reservedEC2 struct {
	fakeEC2
	state string
}

func (r *reservedEC2) DescribeInstances(
	_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	i := ec2types.Instance{
		InstanceId: aws.String(in.Filters[0].Values[0]), State: &ec2types.InstanceState{Name: ec2types.InstanceStateName(r.state)},
	}
	if r.state != "terminated" {
		i.CapacityReservationId = aws.String("cr-1")
		i.CapacityReservationSpecification = &ec2types.CapacityReservationSpecificationResponse{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
		}
	}
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: []ec2types.Instance{i}}}}, nil
}

// The place of a terminated instance is reported once, also if an earlier process terminated the instance.
func TestReservationOfATerminatedInstanceIsFreed(t *testing.T) {
	api := &reservedEC2{}
	var freed []string
	s := New(Config{
		EC2: api, Now: time.Now, Window: batch.Window{Idle: time.Millisecond, Max: time.Millisecond, Items: 1},
		ReservationFreed: func(id string) { freed = append(freed, id) },
	})
	for _, step := range []struct {
		state string
		want  []string
	}{{"running", nil}, {"shutting-down", nil}, {"terminated", []string{"cr-1"}}, {"terminated", []string{"cr-1"}}} {
		api.state = step.state
		_, err := s.Get(t.Context(), "aws:///us-east-1a/i-1")
		if gone := errors.Is(err, cloudprovider.ErrNotFound); gone != (step.state == "terminated") {
			t.Fatalf("%s: %v", step.state, err)
		}
		if !slices.Equal(freed, step.want) {
			t.Errorf("%s: freed %v, want %v", step.state, freed, step.want)
		}
	}
}
