package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// TestVolumeLifecycle takes a volume from one machine to another, with all that can be in the way.
func TestVolumeLifecycle(t *testing.T) {
	a := open(t)
	a.template(t, "general", nil)
	launched := must(a.CreateFleet(t.Context(), a.fleetOf("general", 2, types.InstanceTypeM5Large)))(t).Instances[0]
	one, two := launched.InstanceIds[0], launched.InstanceIds[1]
	zone := launched.LaunchTemplateAndOverrides.Overrides.AvailabilityZone
	elsewhere := "us-east-1a"
	if *zone == elsewhere {
		elsewhere = "us-east-1b"
	}
	create := func(zone string, token string) *awsec2.CreateVolumeInput {
		return &awsec2.CreateVolumeInput{
			AvailabilityZone: &zone, Size: aws.Int32(8), VolumeType: types.VolumeTypeGp3, ClientToken: &token,
			TagSpecifications: []types.TagSpecification{
				{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{{Key: aws.String("pvc"), Value: aws.String("data")}}},
			},
		}
	}
	v := must(a.CreateVolume(t.Context(), create(*zone, "t1")))(t)
	if again := must(a.CreateVolume(t.Context(), create(*zone, "t1")))(t); *again.VolumeId != *v.VolumeId {
		t.Errorf("the same token, another volume: %s, %s", *v.VolumeId, *again.VolumeId)
	}
	far := must(a.CreateVolume(t.Context(), create(elsewhere, "t2")))(t)
	attach := func(volume, instance, device string) string {
		_, err := a.AttachVolume(t.Context(), &awsec2.AttachVolumeInput{VolumeId: &volume, InstanceId: &instance, Device: &device})
		return awsimtest.Code(err)
	}
	detach := func(volume string) string {
		_, err := a.DetachVolume(t.Context(), &awsec2.DetachVolumeInput{VolumeId: &volume})
		return awsimtest.Code(err)
	}
	remove := func(volume string) string {
		_, err := a.DeleteVolume(t.Context(), &awsec2.DeleteVolumeInput{VolumeId: &volume})
		return awsimtest.Code(err)
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("attach to a pending instance", attach(*v.VolumeId, one, "/dev/xvdaa"), "IncorrectState")
	a.Clock.Advance(3 * time.Second)
	expect("attach", attach(*v.VolumeId, one, "/dev/xvdaa"), "")
	expect("attach twice", attach(*v.VolumeId, two, "/dev/xvdaa"), "VolumeInUse")
	expect("attach across zones", attach(*far.VolumeId, one, "/dev/xvdab"), "InvalidVolume.ZoneMismatch")
	expect("attach to nothing", attach(*far.VolumeId, "i-0123456789abcdef0", "/dev/xvdab"), "InvalidInstanceID.NotFound")
	expect("delete while attached", remove(*v.VolumeId), "VolumeInUse")
	shown := must(a.DescribeInstances(t.Context(), &awsec2.DescribeInstancesInput{InstanceIds: []string{one}}))(t).Reservations[0].Instances[0]
	if disks := shown.BlockDeviceMappings; len(disks) != 2 || *disks[1].Ebs.VolumeId != *v.VolumeId || *disks[1].Ebs.DeleteOnTermination {
		t.Errorf("the instance shows %d disks", len(disks))
	}
	expect("detach the root", detach(*shown.BlockDeviceMappings[0].Ebs.VolumeId), "OperationNotPermitted")
	expect("detach", detach(*v.VolumeId), "")
	expect("detach twice", detach(*v.VolumeId), "IncorrectState")
	expect("attach elsewhere", attach(*v.VolumeId, two, "/dev/xvdaa"), "")

	// An instance that terminates leaves behind what was attached to it.
	must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{two}}))(t)
	a.Clock.Advance(3 * time.Second)
	expect("detach from a machine that is gone", detach(*v.VolumeId), "IncorrectState")
	expect("delete", remove(*v.VolumeId), "")
	expect("delete what is gone", remove(*v.VolumeId), "InvalidVolume.NotFound")
}

func TestCreateVolumeRefuses(t *testing.T) {
	a := open(t)
	for want, in := range map[string]awsec2.CreateVolumeInput{
		"InvalidZone.NotFound":  {AvailabilityZone: aws.String("us-east-1z"), Size: aws.Int32(8)},
		"MissingParameter":      {AvailabilityZone: aws.String("us-east-1a")},
		"InvalidParameterValue": {AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(8), VolumeType: types.VolumeTypeSt1},
		"UnknownVolumeType":     {AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(8), VolumeType: "gp9"},
		"DryRunOperation":       {AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(8), DryRun: aws.Bool(true)},
		"UnsupportedOperation":  {AvailabilityZone: aws.String("us-east-1a"), SnapshotId: aws.String("snap-0123456789abcdef0")},
	} {
		if _, err := a.CreateVolume(t.Context(), &in); awsimtest.Code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
