package instance

import (
	"context"
	"fmt"
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
)

// taggedOnce is EC2 under a policy that denies to tag an instance that has an owner. Its descriptions are always those from before.
type taggedOnce struct {
	fakeEC2
	mu    sync.Mutex
	owned map[string]bool
}

var fromPredecessor = map[string]string{
	"eks:eks-cluster-name": "prod", "karpenter.sh/nodepool": "default", "karpenter.sh/nodeclaim": "default-a",
}

func (r *taggedOnce) DescribeInstances(
	_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	out := &ec2.DescribeInstancesOutput{}
	for _, id := range in.Filters[0].Values {
		out.Reservations = append(out.Reservations, ec2types.Reservation{Instances: []ec2types.Instance{{
			InstanceId: aws.String(id), State: &ec2types.InstanceState{Name: "running"}, Tags: Tags(fromPredecessor),
		}}})
	}
	return out, nil
}

func (r *taggedOnce) CreateTags(_ context.Context, in *ec2.CreateTagsInput, _ ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := in.Resources[0]
	if r.owned[id] {
		return nil, &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "no policy allows it"}
	}
	r.owned[id] = true
	return &ec2.CreateTagsOutput{}, nil
}

// Several readers meet an adoptable instance at about the same time, some with an old description. It is tagged once.
func TestAnInstanceIsAdoptedOnce(t *testing.T) {
	region := &taggedOnce{owned: map[string]bool{}}
	s := New(Config{
		EC2: region, Identity: blue, Now: time.Now, Window: batch.Window{Idle: time.Millisecond, Max: time.Second, Items: 3},
		Match: func(string) identity.Match { return identity.Match{ClaimUID: "uid-of-claim", ClaimName: "default-a"} },
	})
	seen, err := s.Get(t.Context(), ProviderID("us-east-1a", "i-1"))
	if err != nil || seen.Owner != cloudprovider.Adoptable {
		t.Fatalf("%v, owner %v", err, seen.Owner)
	}
	var readers sync.WaitGroup
	failed := make([]error, 8)
	for n := range failed {
		readers.Go(func() { failed[n] = s.Adopt(t.Context(), seen) })
	}
	readers.Wait()
	for n, err := range append(failed, s.Adopt(t.Context(), seen)) {
		if err != nil {
			t.Error(fmt.Errorf("reader %d: %w", n, err))
		}
	}
	if !region.owned["i-1"] {
		t.Error("the instance has no owner")
	}
}
