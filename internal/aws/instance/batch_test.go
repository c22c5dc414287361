package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

var blue = identity.Identity{ClusterUID: "uid-blue", ClusterName: "prod", Region: "us-east-1"}

// fakeEC2 is EC2 as far as terminations go; it terminates stubborn instances only in calls of their own.
type fakeEC2 struct {
	mu    sync.Mutex
	calls []string
	// stubborn instances stay running when others are terminated by the same call; refused ones fail the call.
	stubborn, refused string
}

func (r *fakeEC2) DescribeInstances(
	_ context.Context,
	in *ec2.DescribeInstancesInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	out := &ec2.DescribeInstancesOutput{}
	for _, id := range in.Filters[0].Values {
		out.Reservations = append(out.Reservations, ec2types.Reservation{Instances: []ec2types.Instance{{
			InstanceId: aws.String(id), State: &ec2types.InstanceState{Name: "running"},
			Tags: Tags(map[string]string{"dovetail.sh/cluster-uid": "uid-blue"}),
		}}})
	}
	return out, nil
}

func (r *fakeEC2) TerminateInstances(
	_ context.Context,
	in *ec2.TerminateInstancesInput,
	_ ...func(*ec2.Options),
) (*ec2.TerminateInstancesOutput, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprint(len(in.InstanceIds)))
	out := &ec2.TerminateInstancesOutput{}
	for _, id := range in.InstanceIds {
		if id == r.refused {
			return nil, &smithy.GenericAPIError{Code: "OperationNotPermitted", Message: "protected"}
		}
		state := ec2types.InstanceStateNameShuttingDown
		if id == r.stubborn && len(in.InstanceIds) > 1 {
			state = ec2types.InstanceStateNameRunning
		}
		out.TerminatingInstances = append(out.TerminatingInstances, ec2types.InstanceStateChange{
			InstanceId: aws.String(id), CurrentState: &ec2types.InstanceState{Name: state},
		})
	}
	return out, nil
}

func (r *fakeEC2) CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error) {
	return nil, errors.New("nothing is tagged here")
}

type failures struct {
	cloudprovider.NoMeter
	mu sync.Mutex
	n  int
}

func (f *failures) TerminationFailed(string, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

func TestBatchedTerminations(t *testing.T) {
	for _, tt := range []struct {
		name   string
		region *fakeEC2
		calls  string
		failed string
	}{
		{"all at once", &fakeEC2{}, "3", ""},
		{"one that stays running is terminated alone", &fakeEC2{stubborn: "i-1"}, "3 1", ""},
		{"one that EC2 refuses to end does not keep the others", &fakeEC2{refused: "i-1"}, "3 1 1 1", "i-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			counted := &failures{}
			s := New(
				Config{
					EC2:      tt.region,
					Identity: blue,
					Meter:    counted,
					Now:      time.Now,
					Window:   batch.Window{Idle: 5 * time.Second, Max: 10 * time.Second, Items: 3},
				},
			)
			var done sync.WaitGroup
			for n := range 3 {
				done.Go(func() {
					id := fmt.Sprintf("i-%d", n)
					if err := s.Terminate(t.Context(), destroytest.Permit(ProviderID("a", id))); (err != nil) != (id == tt.failed) {
						t.Errorf("%s: %v", id, err)
					}
				})
			}
			done.Wait()
			if got := strings.Join(tt.region.calls, " "); got != tt.calls {
				t.Errorf("calls terminated %s instances, want %s", got, tt.calls)
			}
			if counted.n != b2i(tt.failed != "") {
				t.Errorf("%d failures are counted", counted.n)
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
