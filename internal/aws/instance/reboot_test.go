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
	"github.com/aws/smithy-go"

	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// rebootingEC2 records reboots and answers with an error.
type rebootingEC2 struct {
	fakeEC2
	owner, state string
	rebooted     []string
	err          error
}

func (r *rebootingEC2) DescribeInstances(
	_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: []ec2types.Instance{{
		InstanceId: aws.String(in.Filters[0].Values[0]), State: &ec2types.InstanceState{Name: ec2types.InstanceStateName(r.state)},
		Tags: Tags(map[string]string{"dovetail.sh/cluster-uid": r.owner}),
	}}}}}, nil
}

func (r *rebootingEC2) RebootInstances(
	_ context.Context, in *ec2.RebootInstancesInput, _ ...func(*ec2.Options),
) (*ec2.RebootInstancesOutput, error) {
	if r.err == nil && aws.ToBool(in.DryRun) {
		return nil, &smithy.GenericAPIError{Code: "DryRunOperation"}
	}
	if r.err == nil {
		r.rebooted = append(r.rebooted, in.InstanceIds...)
	}
	return &ec2.RebootInstancesOutput{}, r.err
}

// Only an instance that is proven to be ours is rebooted, and an error states whether a repetition may help.
func TestReboot(t *testing.T) {
	coded := func(code string) error { return &smithy.GenericAPIError{Code: code, Message: "no"} }
	for _, tc := range []struct {
		name               string
		owner, state       string
		err                error
		rebooted           bool
		notFound, refusing bool
		unknown            bool // whether the reboot, not its check, may have had its effect
	}{
		{name: "ours", owner: "uid-blue", state: "running", rebooted: true},
		{name: "of another cluster", owner: "uid-green", state: "running", refusing: true},
		{name: "shutting down", owner: "uid-blue", state: "shutting-down", notFound: true},
		{name: "unknown to EC2", owner: "uid-blue", state: "running", err: coded("InvalidInstanceID.NotFound"), notFound: true},
		{name: "without permission", owner: "uid-blue", state: "running", err: coded("UnauthorizedOperation"), refusing: true},
		{name: "throttled", owner: "uid-blue", state: "running", err: coded("RequestLimitExceeded")},
		{name: "no answer", owner: "uid-blue", state: "running", err: errors.New("connection reset"), unknown: true},
		{
			name: "failed", owner: "uid-blue", state: "running", unknown: true,
			err: &smithy.GenericAPIError{Code: "InternalError", Fault: smithy.FaultServer},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			region := &rebootingEC2{owner: tc.owner, state: tc.state, err: tc.err}
			r := &Rebooter{Instances: New(Config{EC2: region, Identity: blue, Now: time.Now, Window: batch.Window{Items: 1}}), EC2: region}
			reboot := func(ctx context.Context, providerID string) error {
				return r.Reboot(ctx, destroytest.Permit(providerID))
			}
			for i, call := range []func(context.Context, string) error{r.CheckReboot, reboot} {
				err := call(t.Context(), "aws:///us-east-1a/i-0123456789abcdef0")
				if (err == nil) != tc.rebooted || errors.Is(err, cloudprovider.ErrNotFound) != tc.notFound ||
					errors.Is(err, cloudprovider.ErrRebootRefused) != tc.refusing {
					t.Errorf("error %v", err)
				}
				if got := errors.Is(err, cloudprovider.ErrOutcomeUnknown); got != (tc.unknown && i == 1) {
					t.Errorf("outcome unknown: %t after %v", got, err)
				}
			}
			want := []string{"i-0123456789abcdef0"}
			if !tc.rebooted {
				want = nil
			}
			if !slices.Equal(region.rebooted, want) {
				t.Errorf("rebooted %v, want %v: a check reboots nothing", region.rebooted, want)
			}
		})
	}
}
