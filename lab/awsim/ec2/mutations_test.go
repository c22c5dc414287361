package ec2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
)

func tagged(kind types.ResourceType, key, value string) []types.TagSpecification {
	return []types.TagSpecification{{ResourceType: kind, Tags: []types.Tag{{Key: aws.String(key), Value: aws.String(value)}}}}
}

// wantError fails the test unless a call was rejected with a code, in a message that holds a text.
func wantError(t *testing.T, err error, code, text string) {
	t.Helper()
	if awsimtest.Code(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("the call ended with %v, want %s with %q", err, code, text)
	}
}

// A test makes a security group, finds it by its tag, launches into it, and can delete it only when nothing uses it.
func TestASecurityGroupOfATest(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	in := &awsec2.CreateSecurityGroupInput{
		GroupName: aws.String("extra"), Description: aws.String("of a test"), VpcId: aws.String(a.vpc),
		TagSpecifications: tagged(types.ResourceTypeSecurityGroup, "karpenter.sh/discovery", "shop"),
	}
	made := must(a.CreateSecurityGroup(ctx, in))(t)
	_, err := a.CreateSecurityGroup(ctx, in)
	wantError(t, err, "InvalidGroup.Duplicate", "extra")
	found := must(
		a.DescribeSecurityGroups(
			ctx,
			&awsec2.DescribeSecurityGroupsInput{Filters: []types.Filter{filter("tag:karpenter.sh/discovery", "shop")}},
		),
	)(
		t,
	)
	if len(found.SecurityGroups) != 1 || *found.SecurityGroups[0].GroupId != *made.GroupId ||
		len(found.SecurityGroups[0].IpPermissionsEgress) != 1 {
		t.Fatalf("found by its tag: %+v", found.SecurityGroups)
	}
	launched := must(a.RunInstances(ctx, &awsec2.RunInstancesInput{
		MinCount: aws.Int32(
			1,
		), MaxCount: aws.Int32(1), ImageId: &a.x86, InstanceType: "m5.large", SubnetId: &a.subnets[0], SecurityGroupIds: []string{*made.GroupId},
	}))(t)
	a.Clock.Advance(time.Minute)
	_, err = a.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: made.GroupId})
	wantError(t, err, "DependencyViolation", *made.GroupId)
	must(a.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*launched.Instances[0].InstanceId}}))(t)
	a.Clock.Advance(time.Minute)
	must(a.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: made.GroupId}))(t)
	_, err = a.DeleteSecurityGroup(ctx, &awsec2.DeleteSecurityGroupInput{GroupId: made.GroupId})
	wantError(t, err, "InvalidGroup.NotFound", *made.GroupId)
}

// What a subnet gives its instances changes for those launched afterwards.
func TestModifySubnetAttribute(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	public := func() bool {
		out := must(a.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{SubnetIds: a.subnets[:1]}))(t)
		return *out.Subnets[0].MapPublicIpOnLaunch
	}
	if public() {
		t.Fatal("the subnet is public to begin with")
	}
	on := &types.AttributeBooleanValue{Value: aws.Bool(true)}
	must(a.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: &a.subnets[0], MapPublicIpOnLaunch: on}))(t)
	if !public() {
		t.Error("the subnet is not public")
	}
	_, err := a.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: &a.subnets[0], AssignIpv6AddressOnCreation: on})
	wantError(t, err, "InvalidParameterValue", "IPv6")
	_, err = a.ModifySubnetAttribute(
		ctx,
		&awsec2.ModifySubnetAttributeInput{SubnetId: aws.String("subnet-0123456789abcdef0"), MapPublicIpOnLaunch: on},
	)
	wantError(t, err, "InvalidSubnetID.NotFound", "subnet-0123456789abcdef0")
}

// Instances are named by their ID where the subnet reports it, unless the launch states otherwise.
func TestInstancesAreNamedAsTheirSubnetSays(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	named := func(options *types.PrivateDnsNameOptionsRequest) types.Instance {
		out := must(a.RunInstances(ctx, &awsec2.RunInstancesInput{
			ImageId: &a.x86, InstanceType: types.InstanceTypeM5Large, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), SubnetId: &a.subnets[0],
			PrivateDnsNameOptions: options,
		}))(t)
		return out.Instances[0]
	}
	byIP := named(nil)
	must(a.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{
		SubnetId: &a.subnets[0], PrivateDnsHostnameTypeOnLaunch: types.HostnameTypeResourceName,
	}))(t)
	subnets := must(a.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{Filters: []types.Filter{
		filter("private-dns-name-options-on-launch.hostname-type", "resource-name"),
	}}))(t)
	if len(subnets.Subnets) != 1 || subnets.Subnets[0].PrivateDnsNameOptionsOnLaunch.HostnameType != types.HostnameTypeResourceName {
		t.Errorf("subnets %+v", subnets.Subnets)
	}
	byID, asked := named(nil), named(&types.PrivateDnsNameOptionsRequest{HostnameType: types.HostnameTypeIpName})
	for _, c := range []struct {
		instance types.Instance
		want     string
		how      types.HostnameType
	}{
		{byIP, "ip-" + strings.ReplaceAll(*byIP.PrivateIpAddress, ".", "-") + ".ec2.internal", types.HostnameTypeIpName},
		{byID, *byID.InstanceId + ".ec2.internal", types.HostnameTypeResourceName},
		{asked, "ip-" + strings.ReplaceAll(*asked.PrivateIpAddress, ".", "-") + ".ec2.internal", types.HostnameTypeIpName},
	} {
		if *c.instance.PrivateDnsName != c.want || c.instance.PrivateDnsNameOptions.HostnameType != c.how {
			t.Errorf("%s is named %s (%s), want %s", *c.instance.InstanceId, *c.instance.PrivateDnsName,
				c.instance.PrivateDnsNameOptions.HostnameType, c.want)
		}
	}
	_, err := a.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{
		SubnetId: &a.subnets[0], PrivateDnsHostnameTypeOnLaunch: "by-name",
	})
	wantError(t, err, "InvalidParameterValue", "by-name")
}

// An image is copied into the account, deprecated, and still seen by its owner.
func TestCopiedImageIsDeprecated(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	made := must(a.CopyImage(ctx, &awsec2.CopyImageInput{
		SourceImageId: &a.x86, SourceRegion: aws.String("us-east-1"), Name: aws.String("mine"),
		TagSpecifications: tagged(types.ResourceTypeImage, "team", "a"),
	}))(t)
	show := func() types.Image {
		out := must(
			a.DescribeImages(ctx, &awsec2.DescribeImagesInput{Owners: []string{"self"}, Filters: []types.Filter{filter("tag:team", "a")}}),
		)(
			t,
		)
		if len(out.Images) != 1 {
			t.Fatalf("%d images", len(out.Images))
		}
		return out.Images[0]
	}
	if i := show(); *i.ImageId != *made.ImageId || *i.Name != "mine" || *i.Public || i.DeprecationTime != nil ||
		i.Architecture != types.ArchitectureValuesX8664 {
		t.Errorf("the copy is %+v", i)
	}
	must(
		a.EnableImageDeprecation(
			ctx,
			&awsec2.EnableImageDeprecationInput{ImageId: made.ImageId, DeprecateAt: aws.Time(a.Clock.Now().Add(time.Hour))},
		),
	)(
		t,
	)
	if i := show(); i.DeprecationTime == nil {
		t.Error("the copy has no time of deprecation")
	}
	must(a.DisableImageDeprecation(ctx, &awsec2.DisableImageDeprecationInput{ImageId: made.ImageId}))(t)
	if i := show(); i.DeprecationTime != nil {
		t.Errorf("the copy is deprecated at %s", *i.DeprecationTime)
	}
	again := must(a.CopyImage(ctx, &awsec2.CopyImageInput{
		SourceImageId: made.ImageId, SourceRegion: aws.String("us-east-1"), Name: aws.String("copy of mine"),
	}))(t)
	if got := a.Sim.ImageContent(*again.ImageId); got != a.x86 {
		t.Errorf("the copy of a copy boots as %s, want %s", got, a.x86)
	}
	_, err := a.EnableImageDeprecation(
		ctx,
		&awsec2.EnableImageDeprecationInput{ImageId: &a.x86, DeprecateAt: aws.Time(a.Clock.Now().Add(time.Hour))},
	)
	wantError(t, err, "AuthFailure", a.x86)
	_, err = a.CopyImage(
		ctx,
		&awsec2.CopyImageInput{SourceImageId: &a.x86, SourceRegion: aws.String("eu-west-1"), Name: aws.String("mine")},
	)
	wantError(t, err, "UnsupportedOperation", "us-east-1")
}

// Tags are copied with the image, also where it has none, and those of the call win.
func TestTagsAreCopiedWithAnImage(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	source := a.Sim.EC2().AddImage(image.Image{Name: "bare", Architecture: "x86_64"}, nil)
	for _, name := range []string{"first", "second"} {
		made := must(a.CopyImage(ctx, &awsec2.CopyImageInput{
			SourceImageId: &source, SourceRegion: aws.String("us-east-1"), Name: &name, CopyImageTags: aws.Bool(true),
			TagSpecifications: tagged(types.ResourceTypeImage, name, "a"),
		}))(t)
		source = *made.ImageId
	}
	out := must(a.DescribeImages(ctx, &awsec2.DescribeImagesInput{ImageIds: []string{source}}))(t)
	if tags := out.Images[0].Tags; len(tags) != 2 || *tags[0].Key != "first" || *tags[1].Key != "second" {
		t.Errorf("tags %+v", tags)
	}
}

// Capacity is reserved, changed and returned through the API.
func TestCapacityReservationOfATest(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	in := &awsec2.CreateCapacityReservationInput{
		InstanceType: aws.String(
			"m5.large",
		), InstancePlatform: types.CapacityReservationInstancePlatformLinuxUnix, AvailabilityZone: aws.String("us-east-1a"),
		InstanceCount: aws.Int32(1), InstanceMatchCriteria: types.InstanceMatchCriteriaTargeted, ClientToken: aws.String("once"),
		TagSpecifications: tagged(types.ResourceTypeCapacityReservation, "team", "a"),
	}
	made := must(a.CreateCapacityReservation(ctx, in))(t).CapacityReservation
	if again := must(a.CreateCapacityReservation(ctx, in))(t).CapacityReservation; *again.CapacityReservationId != *made.CapacityReservationId {
		t.Error("a client token makes two reservations")
	}
	show := func() types.CapacityReservation {
		out := must(
			a.DescribeCapacityReservations(ctx, &awsec2.DescribeCapacityReservationsInput{Filters: []types.Filter{filter("tag:team", "a")}}),
		)(
			t,
		)
		return out.CapacityReservations[0]
	}
	if r := show(); r.State != types.CapacityReservationStateActive || *r.AvailableInstanceCount != 1 ||
		r.InstanceMatchCriteria != types.InstanceMatchCriteriaTargeted {
		t.Errorf("the reservation is %+v", r)
	}
	end := a.Clock.Now().Add(time.Hour)
	must(a.ModifyCapacityReservation(ctx, &awsec2.ModifyCapacityReservationInput{
		CapacityReservationId: made.CapacityReservationId, InstanceCount: aws.Int32(3), EndDateType: types.EndDateTypeLimited, EndDate: &end,
	}))(t)
	if r := show(); *r.TotalInstanceCount != 3 || r.EndDateType != types.EndDateTypeLimited {
		t.Errorf("the reservation is %+v", r)
	}
	must(a.CancelCapacityReservation(ctx, &awsec2.CancelCapacityReservationInput{CapacityReservationId: made.CapacityReservationId}))(t)
	if r := show(); r.State != types.CapacityReservationStateCancelled {
		t.Errorf("the reservation is %s", r.State)
	}
	_, err := a.CancelCapacityReservation(ctx, &awsec2.CancelCapacityReservationInput{CapacityReservationId: made.CapacityReservationId})
	wantError(t, err, "InvalidCapacityReservationState", "cancelled")
	in.ClientToken, in.InstanceType = nil, aws.String("m5.tiny")
	_, err = a.CreateCapacityReservation(ctx, in)
	wantError(t, err, "InvalidParameterValue", "m5.tiny")
}

// The request of each Spot instance is listed, with what has become of it.
func TestDescribeSpotInstanceRequests(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	a.template(t, "spot", nil)
	in := a.fleetOf("spot", 1, "m5.large")
	in.TargetCapacitySpecification.DefaultTargetCapacityType = types.DefaultTargetCapacityTypeSpot
	id := must(a.CreateFleet(ctx, in))(t).Instances[0].InstanceIds[0]
	a.Clock.Advance(time.Minute)
	show := func() types.SpotInstanceRequest {
		out := must(
			a.DescribeSpotInstanceRequests(ctx, &awsec2.DescribeSpotInstanceRequestsInput{Filters: []types.Filter{filter("instance-id", id)}}),
		)(
			t,
		)
		if len(out.SpotInstanceRequests) != 1 {
			t.Fatalf("%d requests", len(out.SpotInstanceRequests))
		}
		return out.SpotInstanceRequests[0]
	}
	if r := show(); r.State != types.SpotInstanceStateActive || *r.Status.Code != "fulfilled" {
		t.Errorf("the request is %s (%s)", r.State, *r.Status.Code)
	}
	if err := a.Sim.EC2().Reclaim(id); err != nil {
		t.Fatal(err)
	}
	a.Clock.Advance(5 * time.Minute)
	if r := show(); r.State != types.SpotInstanceStateClosed || *r.Status.Code != "instance-terminated-no-capacity" {
		t.Errorf("the request is %s (%s)", r.State, *r.Status.Code)
	}
}
