package instance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// launchedForEC2 has one instance, with tags that name a claim.
type launchedForEC2 struct {
	fakeEC2
	claim, uid string
}

func (r *launchedForEC2) DescribeInstances(
	_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: []ec2types.Instance{{
		InstanceId: aws.String(in.Filters[0].Values[0]), State: &ec2types.InstanceState{Name: "running"},
		Tags: Tags(map[string]string{awsv1.TagClusterUID: "uid-blue", awsv1.TagNodeClaim: r.claim, identity.TagNodeClaimUID: r.uid}),
	}}}}}, nil
}

// A claim with the provider ID of another claim's instance does not terminate it.
func TestOnlyTheInstanceThatWasLaunchedForAClaimIsTerminated(t *testing.T) {
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = "a", "uid-a"
	for _, tt := range []struct {
		name, claim, uid string
		terminated       bool
	}{
		{"launched for the claim", "a", "uid-a", true},
		{"the claim was restored with another UID", "a", "uid-before", true},
		{"no tag names a claim yet", "", "", true},
		{"launched for another claim", "b", "uid-b", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			region := &launchedForEC2{claim: tt.claim, uid: tt.uid}
			s := New(Config{
				EC2: region, Identity: blue, Meter: &failures{}, Now: time.Now,
				Window: batch.Window{Idle: time.Nanosecond, Max: time.Second, Items: 1},
			})
			id := ProviderID("us-east-1a", "i-1")
			err := s.Terminate(t.Context(), destroytest.PermitFor(claim, id))
			if (err == nil) != tt.terminated || !tt.terminated && !errors.Is(err, destroy.ErrNotProven) || len(region.calls) != b2i(tt.terminated) {
				t.Errorf("%v, with %d calls of TerminateInstances", err, len(region.calls))
			}
		})
	}
}
