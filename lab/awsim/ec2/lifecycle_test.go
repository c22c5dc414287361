package ec2_test

import (
	"context"
	"encoding/base64"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
)

// TestInstanceLifecycle follows one machine from a fleet to its last trace.
func TestInstanceLifecycle(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	free := a.free(t)
	fleet := must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeM5Large)))(t)
	if len(fleet.Instances) != 1 || len(fleet.Errors) != 0 {
		t.Fatalf("fleet of one: %d groups of instances, errors %v", len(fleet.Instances), fleet.Errors)
	}
	got := fleet.Instances[0]
	id := got.InstanceIds[0]
	byID := &awsec2.DescribeInstancesInput{InstanceIds: []string{id}}

	// A new instance is not known to the Describe calls at once.
	if _, err := a.DescribeInstances(t.Context(), byID); awsimtest.Code(err) != "InvalidInstanceID.NotFound" {
		t.Fatalf("describe right after the launch: %v", err)
	}
	a.Clock.Advance(600 * time.Millisecond)
	i := must(a.DescribeInstances(t.Context(), byID))(t).Reservations[0].Instances[0]
	if i.State.Name != types.InstanceStateNamePending {
		t.Errorf("state %s, want pending", i.State.Name)
	}
	a.Clock.Advance(2 * time.Second)
	i = must(a.DescribeInstances(t.Context(), byID))(t).Reservations[0].Instances[0]
	checkRecord(t, a, got, i)
	taken := 0
	for at := range free {
		taken += int(free[at] - a.free(t)[at])
	}
	if taken != 1 {
		t.Errorf("%d addresses taken, want 1", taken)
	}

	ended := must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))(t).TerminatingInstances[0]
	if ended.PreviousState.Name != types.InstanceStateNameRunning || ended.CurrentState.Name != types.InstanceStateNameShuttingDown {
		t.Errorf("terminate: %s to %s", ended.PreviousState.Name, ended.CurrentState.Name)
	}
	a.Clock.Advance(2 * time.Second)
	i = must(a.DescribeInstances(t.Context(), byID))(t).Reservations[0].Instances[0]
	if i.State.Name != types.InstanceStateNameTerminated || i.PrivateIpAddress != nil || len(i.NetworkInterfaces) != 0 {
		t.Errorf("after the shutdown: state %s, address %v, %d interfaces", i.State.Name, i.PrivateIpAddress, len(i.NetworkInterfaces))
	}
	if *i.StateReason.Code != "Client.UserInitiatedShutdown" {
		t.Errorf("state reason %s", *i.StateReason.Code)
	}
	if now := a.free(t); !slices.Equal(now, free) {
		t.Errorf("addresses after termination %v, before the launch %v", now, free)
	}
	if left := must(a.DescribeVolumes(t.Context(), nil))(t).Volumes; len(left) != 0 {
		t.Errorf("%d volumes left", len(left))
	}
	a.Clock.Advance(time.Hour)
	if _, err := a.DescribeInstances(t.Context(), byID); awsimtest.Code(err) != "InvalidInstanceID.NotFound" {
		t.Errorf("an hour after termination: %v", err)
	}
}

// checkRecord holds the description of a running instance against the launch.
func checkRecord(t *testing.T, a *account, launched types.CreateFleetInstance, i types.Instance) {
	t.Helper()
	overrides := launched.LaunchTemplateAndOverrides.Overrides
	got := map[string]string{
		"state": string(i.State.Name), "image": *i.ImageId, "type": string(i.InstanceType), "zone": *i.Placement.AvailabilityZone,
		"zone id": *i.Placement.AvailabilityZoneId, "tenancy": string(i.Placement.Tenancy), "subnet": *i.SubnetId, "vpc": *i.VpcId,
		"group": *i.SecurityGroups[0].GroupId, "group name": *i.SecurityGroups[0].GroupName, "profile": *i.IamInstanceProfile.Arn,
		"architecture": string(i.Architecture), "tokens": string(i.MetadataOptions.HttpTokens), "pool": tagValue(i.Tags, "pool"),
		"fleet":                  tagValue(i.Tags, "aws:ec2:fleet-id"),
		"reservation preference": string(i.CapacityReservationSpecification.CapacityReservationPreference),
		"nic type":               *i.NetworkInterfaces[0].InterfaceType, "nic group": *i.NetworkInterfaces[0].Groups[0].GroupId,
		"private name": *i.PrivateDnsName, "root": *i.RootDeviceName, "disk": *i.BlockDeviceMappings[0].DeviceName,
		"lifecycle": string(i.InstanceLifecycle), "launched": i.LaunchTime.UTC().Format(time.RFC3339),
	}
	fleetID := got["fleet"]
	want := map[string]string{
		"state": "running", "image": a.x86, "type": "m5.large", "zone": *overrides.AvailabilityZone, "zone id": *overrides.AvailabilityZoneId,
		"tenancy": "default", "subnet": *overrides.SubnetId, "vpc": a.vpc, "group": a.group, "group name": "nodes",
		"profile":      "arn:aws:iam::111122223333:instance-profile/node",
		"architecture": "x86_64", "tokens": "required", "pool": "general", "fleet": fleetID, "reservation preference": "open",
		"nic type": "interface", "nic group": a.group,
		"private name": "ip-" + dashed(*i.PrivateIpAddress) + ".ec2.internal", "root": "/dev/xvda", "disk": "/dev/xvda", "lifecycle": "",
		"launched": "2026-08-21T10:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	if *overrides.ImageId != a.x86 || overrides.InstanceType != types.InstanceTypeM5Large ||
		launched.InstanceType != types.InstanceTypeM5Large {
		t.Errorf("fleet's choice: image %s, type %s", *overrides.ImageId, overrides.InstanceType)
	}
	volumes := must(
		a.DescribeVolumes(
			t.Context(),
			&awsec2.DescribeVolumesInput{Filters: []types.Filter{filter("attachment.instance-id", *i.InstanceId)}},
		),
	)(
		t,
	)
	v := volumes.Volumes[0]
	if *v.Size != 40 || !*v.Encrypted || v.VolumeType != types.VolumeTypeGp3 || tagValue(v.Tags, "pool") != "general" {
		t.Errorf("root volume: %d GiB %s, encrypted %t, tags %v", *v.Size, v.VolumeType, *v.Encrypted, v.Tags)
	}
	nics := must(a.DescribeNetworkInterfaces(t.Context(), &awsec2.DescribeNetworkInterfacesInput{
		Filters: []types.Filter{filter("attachment.instance-id", *i.InstanceId)},
	}))(t)
	if n := nics.NetworkInterfaces[0]; tagValue(n.TagSet, "from") != "template" || *n.Attachment.InstanceId != *i.InstanceId {
		t.Errorf("network interface: tags %v, attached to %s", n.TagSet, *n.Attachment.InstanceId)
	}
}

func dashed(ip string) string {
	out := []byte(ip)
	for i, c := range out {
		if c == '.' {
			out[i] = '-'
		}
	}
	return string(out)
}

func TestWatchReportsEveryStateOnce(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	first := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeM5Large)))(t))[0]
	ctx, cancel := context.WithCancel(t.Context())
	events := a.Sim.Watch(ctx)
	second := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeC5Large)))(t))[0]
	a.Clock.Advance(time.Minute)
	must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{first}}))(t)
	a.Clock.Advance(time.Minute)

	type step struct {
		ID, State string
		At        time.Duration
	}
	start := time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC)
	var got []step
	for range 6 {
		e := (<-events).Instance
		got = append(got, step{e.ID, e.State, e.StateChangedAt.Sub(start)})
	}
	want := []step{
		{first, ec2.Pending, 0},
		{second, ec2.Pending, 0},
		{first, ec2.Running, 2 * time.Second},
		{second, ec2.Running, 2 * time.Second},
		{first, ec2.ShuttingDown, time.Minute},
		{first, ec2.Terminated, time.Minute + 2*time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	cancel()
	if e, open := <-events; open {
		t.Errorf("event after the end: %+v", e)
	}
}

func TestTerminateIsAllOrNothing(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	id := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeM5Large)))(t))[0]
	a.Clock.Advance(time.Minute)
	_, err := a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id, "i-0123456789abcdef0"}})
	if awsimtest.Code(err) != "InvalidInstanceID.NotFound" {
		t.Fatalf("with an unknown ID: %v", err)
	}
	if state := a.Sim.Instances()[0].State; state != ec2.Running {
		t.Errorf("the known instance is %s", state)
	}
	for _, want := range []types.InstanceStateName{types.InstanceStateNameShuttingDown, types.InstanceStateNameShuttingDown} {
		out := must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))(t)
		if got := out.TerminatingInstances[0].CurrentState.Name; got != want {
			t.Errorf("state %s, want %s", got, want)
		}
	}
}

func TestStopAndStart(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	id := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeM5Large)))(t))[0]
	ids := []string{id}
	state := func() types.InstanceStateName { return a.describe(t, filter("instance-id", id))[0].State.Name }
	a.Clock.Advance(time.Second)
	if _, err := a.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: ids}); awsimtest.Code(
		err,
	) != "IncorrectInstanceState" {
		t.Errorf("stop while pending: %v", err)
	}
	a.Clock.Advance(time.Minute)
	before := a.free(t)
	must(a.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: ids}))(t)
	if got := state(); got != types.InstanceStateNameStopping {
		t.Errorf("state %s, want stopping", got)
	}
	a.Clock.Advance(time.Minute)
	if got := state(); got != types.InstanceStateNameStopped {
		t.Errorf("state %s, want stopped", got)
	}
	if after := a.free(t); !slices.Equal(before, after) {
		t.Errorf("a stopped instance keeps its address: free %v, were %v", after, before)
	}
	must(a.StartInstances(t.Context(), &awsec2.StartInstancesInput{InstanceIds: ids}))(t)
	a.Clock.Advance(time.Minute)
	if got := state(); got != types.InstanceStateNameRunning {
		t.Errorf("state %s, want running", got)
	}
}

func TestConsoleOutput(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	id := launchedIDs(must(a.CreateFleet(t.Context(), a.fleetOf("general", 1, types.InstanceTypeM5Large)))(t))[0]
	a.Sim.AppendConsole(id, "booting\n")
	a.Sim.AppendConsole(id, "login:\n")
	out := must(a.GetConsoleOutput(t.Context(), &awsec2.GetConsoleOutputInput{InstanceId: aws.String(id)}))(t)
	text, err := base64.StdEncoding.DecodeString(*out.Output)
	if err != nil || string(text) != "booting\nlogin:\n" {
		t.Errorf("console %q, %v", text, err)
	}
}

// TestWallClock: without a clock of its own the account lives in real time.
func TestWallClock(t *testing.T) {
	sim := must(awsim.New(awsim.Options{
		Latency: -1, Timing: awsim.Timing{Boot: time.Millisecond, Shutdown: time.Millisecond, Visible: 1, TerminatedKept: time.Hour},
	}))(t)
	defer sim.Close()
	w := inProcess{sim}
	vpc := must(sim.EC2().AddVPC(ec2.VPC{CIDR: netip.MustParsePrefix("10.0.0.0/16")}))(t)
	subnet := must(sim.EC2().AddSubnet(ec2.Subnet{VPCID: vpc, Zone: "us-east-1b", CIDR: netip.MustParsePrefix("10.0.0.0/24")}))(t)
	events := sim.Watch(t.Context())
	w.call(t, "Action=RunInstances&MinCount=1&MaxCount=1&InstanceType=m5.large&SubnetId="+subnet+"&ImageId="+
		imageNamed("amazon-eks-node-al2023-x86_64-standard-1.36-v20260715"))
	var got []string
	for e := range events {
		got = append(got, e.Instance.State)
		if e.Instance.State == ec2.Running {
			w.call(t, "Action=TerminateInstances&InstanceId.1="+e.Instance.ID)
		}
		if e.Instance.State == ec2.Terminated {
			break
		}
	}
	if want := []string{ec2.Pending, ec2.Running, ec2.ShuttingDown, ec2.Terminated}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
}
