package instance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// fakeLateEC2 is EC2 that does not yet show an instance that another process has launched.
type fakeLateEC2 struct{ fakeEC2 }

func (l *fakeLateEC2) DescribeInstances(
	context.Context,
	*ec2.DescribeInstancesInput,
	...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{}, nil
}

// A replica takes over from a leader that may have launched an instance a moment ago. That EC2 does not show it does
// not mean that it is terminated.
func TestNewLeaderWaitsForVisibility(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	leading := make(chan struct{})
	s := New(
		Config{
			EC2:      &fakeLateEC2{},
			Identity: blue,
			Leading:  leading,
			Now:      func() time.Time { return now },
			Window:   batch.Window{Idle: time.Nanosecond, Max: time.Second, Items: 1},
		},
	)
	seen := func(when string, want error) {
		t.Helper()
		if err := s.Terminate(t.Context(), destroytest.Permit(ProviderID("us-east-1a", "i-1"))); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
	}
	now = now.Add(72 * time.Hour)
	seen("while another leads", ErrNotVisible)
	close(leading)
	if _, err := s.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	now = now.Add(VisibleWithin - time.Second)
	seen("just after it has taken over", ErrNotVisible)
	now = now.Add(time.Second)
	seen("when EC2 would show it", cloudprovider.ErrNotFound)
}
