package ec2_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func TestFleetLaunchesTheCheapestOnDemand(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	out := must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.4xlarge", "m5.large", "m5.xlarge")))(t)
	if got := out.Instances[0].InstanceType; got != "m5.large" {
		t.Errorf("launched %s", got)
	}
}

func TestFleetByPriority(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	in := a.fleetOf("general", 1, "m5.4xlarge", "m5.large", "m5.xlarge")
	for i := range in.LaunchTemplateConfigs[0].Overrides {
		o := &in.LaunchTemplateConfigs[0].Overrides[i]
		o.Priority = aws.Float64(map[types.InstanceType]float64{"m5.4xlarge": 2, "m5.large": 3, "m5.xlarge": 1}[o.InstanceType])
	}
	in.OnDemandOptions = &types.OnDemandOptionsRequest{AllocationStrategy: types.FleetOnDemandAllocationStrategyPrioritized}
	if got := must(a.CreateFleet(t.Context(), in))(t).Instances[0].InstanceType; got != "m5.xlarge" {
		t.Errorf("launched %s", got)
	}
}

func TestFleetOfSpot(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	in := a.fleetOf("general", 1, "m5.large", "c5.large", "r5.large")
	in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeSpot
	in.SpotOptions = &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyPriceCapacityOptimized}
	out := must(a.CreateFleet(t.Context(), in))(t)
	if got := out.Instances[0].Lifecycle; got != types.InstanceLifecycleSpot {
		t.Errorf("lifecycle %s", got)
	}
	a.Clock.Advance(1e9)
	i := a.describe(t)[0]
	if i.InstanceLifecycle != types.InstanceLifecycleTypeSpot || !strings.HasPrefix(*i.SpotInstanceRequestId, "sir-") {
		t.Errorf("instance: lifecycle %s, spot request %v", i.InstanceLifecycle, i.SpotInstanceRequestId)
	}
}

// TestEqualPricesShareTheZones: on demand costs the same in all zones, and a fleet of one does not always go to the
// first.
func TestEqualPricesShareTheZones(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	zones := map[string]int{}
	for range 40 {
		zones[*must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.large")))(t).Instances[0].LaunchTemplateAndOverrides.Overrides.AvailabilityZone]++
	}
	if len(zones) != 3 {
		t.Errorf("zones used: %v", zones)
	}
}

func TestFleetFallsBackWhenCapacityEnds(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	for _, zone := range []string{"us-east-1a", "us-east-1b", "us-east-1c"} {
		a.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large", Zone: zone, Lifecycle: "on-demand"}, 1)
	}
	out := must(a.CreateFleet(t.Context(), a.fleetOf("general", 5, "m5.large", "m5.xlarge")))(t)
	count := map[types.InstanceType]int{}
	for _, i := range out.Instances {
		count[i.InstanceType] += len(i.InstanceIds)
	}
	if count["m5.large"] != 3 || count["m5.xlarge"] != 2 {
		t.Errorf("launched %v", count)
	}
	if got := errorCodes(out); !slices.Equal(
		got,
		[]string{
			"InsufficientInstanceCapacity m5.large us-east-1a",
			"InsufficientInstanceCapacity m5.large us-east-1b",
			"InsufficientInstanceCapacity m5.large us-east-1c",
		},
	) {
		t.Errorf("errors %v", got)
	}
}

func TestFleetIsFilledInPart(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	for _, id := range a.subnets {
		a.Sim.EC2().SetFreeAddresses(id, 1)
	}
	out := must(a.CreateFleet(t.Context(), a.fleetOf("general", 5, "m5.large")))(t)
	if n := len(launchedIDs(out)); n != 3 {
		t.Errorf("launched %d, want one per address", n)
	}
	if got := errorCodes(out); len(got) != 3 || !strings.HasPrefix(got[0], "InsufficientFreeAddressesInSubnet m5.large") {
		t.Errorf("errors %v", got)
	}
	if id := *out.Errors[0].LaunchTemplateAndOverrides.Overrides.SubnetId; !slices.Contains(a.subnets, id) {
		t.Errorf("error names the subnet %s", id)
	}
}

// TestPoolsFail: a pattern stands for all pools that it covers, and the most specific one decides.
func TestPoolsFail(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	role := &protocol.Error{
		Code:    "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
		Message: "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
	}
	quota := &protocol.Error{Code: "MaxSpotInstanceCountExceeded", Message: "Max spot instance count exceeded"}
	a.Sim.FailPool(awsim.Pool{Lifecycle: "spot"}, role)
	a.Sim.FailPool(awsim.Pool{InstanceType: "c5.large", Lifecycle: "spot"}, quota)
	a.Sim.SetCapacity(awsim.Pool{Zone: "us-east-1a"}, 0)
	in := a.fleetOf("general", 1, "m5.large", "c5.large")
	in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeSpot
	want := []string{
		role.Code + " m5.large us-east-1a", role.Code + " m5.large us-east-1b", role.Code + " m5.large us-east-1c",
		quota.Code + " c5.large us-east-1a", quota.Code + " c5.large us-east-1b", quota.Code + " c5.large us-east-1c",
	}
	if got := errorCodes(must(a.CreateFleet(t.Context(), in))(t)); !slices.Equal(got, want) {
		t.Errorf("errors %v\nwant   %v", got, want)
	}
	a.Sim.FailPool(awsim.Pool{Lifecycle: "spot"}, nil)
	a.Sim.FailPool(awsim.Pool{InstanceType: "c5.large", Lifecycle: "spot"}, nil)
	for range 5 {
		in.ClientToken = nil // the SDK leaves the token of the last call there
		out := must(a.CreateFleet(t.Context(), in))(t)
		if zone := *out.Instances[0].LaunchTemplateAndOverrides.Overrides.AvailabilityZone; zone == "us-east-1a" {
			t.Errorf("launched in %s, which has no capacity", zone)
		}
	}
}

// errorCodes lists a fleet's errors as code, type and zone, sorted.
func errorCodes(out *awsec2.CreateFleetOutput) []string {
	var list []string
	for _, e := range out.Errors {
		o := e.LaunchTemplateAndOverrides.Overrides
		list = append(list, fmt.Sprint(*e.ErrorCode, " ", o.InstanceType, " ", aws.ToString(o.AvailabilityZone)))
	}
	slices.Sort(list)
	return list
}

// TestFleetErrors: what is wrong with an override is an error of that override, and nothing is launched for it.
func TestFleetErrors(t *testing.T) {
	for name, c := range map[string]struct {
		data func(*account, *types.RequestLaunchTemplateData)
		typ  types.InstanceType
		code string
		text string
	}{
		"architecture": {typ: "m7g.large", code: "InvalidParameterValue", text: "does not match the architecture 'x86_64'"},
		"type":         {typ: "m5.tiny", code: "InvalidParameterValue", text: "Invalid value 'm5.tiny' for InstanceType"},
		"profile": {
			data: func(_ *account, d *types.RequestLaunchTemplateData) { d.IamInstanceProfile.Name = aws.String("nobody") },
			code: "InvalidParameterValue",
			text: "Value (nobody) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
		},
		"image": {
			data: func(_ *account, d *types.RequestLaunchTemplateData) { d.ImageId = aws.String("ami-0123456789abcdef0") },
			code: "InvalidAMIID.NotFound", text: "The image id '[ami-0123456789abcdef0]' does not exist",
		},
		"security group": {
			data: func(_ *account, d *types.RequestLaunchTemplateData) {
				d.NetworkInterfaces[0].Groups = []string{"sg-0123456789abcdef0"}
			},
			code: "InvalidGroup.NotFound", text: "does not exist",
		},
		"security group of another VPC": {
			data: func(a *account, d *types.RequestLaunchTemplateData) {
				d.NetworkInterfaces[0].Groups = []string{a.foreignGroup()}
			},
			code: "InvalidParameter", text: "belong to different networks",
		},
		"disk smaller than its snapshot": {
			data: func(_ *account, d *types.RequestLaunchTemplateData) {
				d.BlockDeviceMappings[0].Ebs.VolumeSize = aws.Int32(8)
			},
			code: "InvalidBlockDeviceMapping", text: "smaller than snapshot",
		},
		"capacity reservation": {
			data: func(_ *account, d *types.RequestLaunchTemplateData) {
				d.CapacityReservationSpecification = &types.LaunchTemplateCapacityReservationSpecificationRequest{
					CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: aws.String("cr-0123456789abcdef0")},
				}
			},
			code: "InvalidCapacityReservationId.NotFound", text: "cr-0123456789abcdef0",
		},
		"too many interfaces": {
			data: func(a *account, d *types.RequestLaunchTemplateData) {
				for n := range int32(8) {
					d.NetworkInterfaces = append(d.NetworkInterfaces, types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
						DeviceIndex: aws.Int32(n + 1), Groups: []string{a.group},
					})
				}
			},
			code: "AttachmentLimitExceeded", text: "exceeds the limit for m5.large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := open(t)
			a.template(t, "general", func(d *types.RequestLaunchTemplateData) {
				if c.data != nil {
					c.data(a, d)
				}
			})
			typ := c.typ
			if typ == "" {
				typ = "m5.large"
			}
			out := must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, typ)))(t)
			if len(out.Instances) != 0 || len(out.Errors) != 3 {
				t.Fatalf("%d instances, %d errors", len(out.Instances), len(out.Errors))
			}
			if e := out.Errors[0]; *e.ErrorCode != c.code || !strings.Contains(*e.ErrorMessage, c.text) {
				t.Errorf("%s: %s", *e.ErrorCode, *e.ErrorMessage)
			}
			if n := len(a.Sim.Instances()); n != 0 {
				t.Errorf("%d instances exist", n)
			}
		})
	}
}

// TestClientToken: the same request with the same token is the same fleet.
func TestClientToken(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	in := a.fleetOf("general", 1, "m5.large")
	in.ClientToken = aws.String("once")
	first, second := must(a.CreateFleet(t.Context(), in))(t), must(a.CreateFleet(t.Context(), in))(t)
	if *first.FleetId != *second.FleetId || !slices.Equal(launchedIDs(first), launchedIDs(second)) || len(a.Sim.Instances()) != 1 {
		t.Errorf("fleets %s and %s, %d instances", *first.FleetId, *second.FleetId, len(a.Sim.Instances()))
	}
	in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(2)
	if _, err := a.CreateFleet(t.Context(), in); awsimtest.Code(err) != "IdempotentParameterMismatch" {
		t.Errorf("same token, other parameters: %v", err)
	}
	in.ClientToken = aws.String("again")
	must(a.CreateFleet(t.Context(), in))(t)
	if n := len(a.Sim.Instances()); n != 3 {
		t.Errorf("%d instances, want 3", n)
	}
}

// TestLostAnswer: the fleet was launched, the client hears of a failure of the server, and an SDK that retries finds
// its fleet.
func TestLostAnswer(t *testing.T) {
	lost := awsim.Fault{
		Service: "ec2", Action: "CreateFleet", AfterEffect: true,
		Error: &protocol.Error{Code: "InternalError", Message: "An internal error has occurred", Status: 500},
	}
	a := open(t)
	a.template(t, "general", nil)
	a.Sim.Inject(lost)
	_, err := a.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.large"))
	var api smithy.APIError
	if awsimtest.Code(err) != "InternalError" || !errors.As(err, &api) || api.ErrorFault() == smithy.FaultClient {
		t.Errorf("lost answer: %v", err)
	}
	if n := len(a.Sim.Instances()); n != 1 {
		t.Errorf("%d instances after a lost answer, want 1", n)
	}
	call := a.Sim.Calls()[len(a.Sim.Calls())-1]
	if call.Action != "CreateFleet" || call.ErrorCode != "InternalError" || !slices.Contains(call.Resources, a.Sim.Instances()[0].ID) {
		t.Errorf("logged call: %+v", call)
	}

	a.Sim.Inject(lost)
	retrying := awsec2.NewFromConfig(a.Config, func(o *awsec2.Options) { o.Retryer = retryNow() })
	out := must(retrying.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.large")))(t)
	if n := len(a.Sim.Instances()); n != 2 || launchedIDs(out)[0] != a.Sim.Instances()[1].ID {
		t.Errorf("%d instances after a retried launch, want 2", n)
	}
}

func TestFaultBeforeTheEffect(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	throttled := &protocol.Error{Code: "RequestLimitExceeded", Message: "Request limit exceeded.", Status: 503}
	a.Sim.Inject(awsim.Fault{Action: "CreateFleet", Error: throttled, Times: 2})
	for range 2 {
		if _, err := a.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.large")); awsimtest.Code(err) != "RequestLimitExceeded" {
			t.Errorf("throttled: %v", err)
		}
	}
	if n := len(a.Sim.Instances()); n != 0 {
		t.Errorf("%d instances", n)
	}
	must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, "m5.large")))(t)
}
