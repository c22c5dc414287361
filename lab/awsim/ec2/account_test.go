package ec2_test

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
)

// account is a region with a VPC, a /24 subnet per zone, a security group and an instance profile, seen through the
// SDK.
type account struct {
	*awsimtest.World
	*awsec2.Client

	vpc     string
	subnets []string // by zone: a, b, c
	group   string
	x86     string // images
	arm     string
}

const profileName = "node"

func open(t testing.TB) *account {
	t.Helper()
	w := awsimtest.Start(t)
	a := &account{World: w, Client: awsec2.NewFromConfig(w.Config)}
	region := w.Sim.EC2()
	a.vpc = must(region.AddVPC(ec2.VPC{CIDR: netip.MustParsePrefix("10.0.0.0/16")}))(t)
	for i, zone := range region.Zones() {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		a.subnets = append(a.subnets, must(region.AddSubnet(ec2.Subnet{
			VPCID: a.vpc, Zone: zone.Name, CIDR: cidr, Tags: map[string]string{"Name": zone.Name, "tier": "private"},
		}))(t))
	}
	a.group = must(region.AddSecurityGroup(ec2.SecurityGroup{VPCID: a.vpc, Name: "nodes", Description: "nodes"}))(t)
	a.x86 = imageNamed("amazon-eks-node-al2023-x86_64-standard-1.36-v20260715")
	a.arm = imageNamed("amazon-eks-node-al2023-arm64-standard-1.36-v20260715")
	a.addProfile(t)
	return a
}

func (a *account) addProfile(t testing.TB) {
	t.Helper()
	c := iam.NewFromConfig(a.Config)
	must(c.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: aws.String("node"), AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
			`"Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`),
	}))(t)
	must(c.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String(profileName)}))(t)
	must(c.AddRoleToInstanceProfile(t.Context(), &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: aws.String(profileName), RoleName: aws.String("node"),
	}))(t)
}

// template makes a launch template as a node autoscaler does, after edit has changed what it likes.
func (a *account) template(t testing.TB, name string, edit func(*types.RequestLaunchTemplateData)) *types.LaunchTemplate {
	t.Helper()
	data := &types.RequestLaunchTemplateData{
		ImageId:  aws.String(a.x86),
		UserData: aws.String(base64.StdEncoding.EncodeToString([]byte("#!/bin/bash\n"))),
		IamInstanceProfile: &types.LaunchTemplateIamInstanceProfileSpecificationRequest{
			Name: aws.String(profileName),
		},
		NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
			DeviceIndex: aws.Int32(0), Groups: []string{a.group},
		}},
		MetadataOptions: &types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpTokens: types.LaunchTemplateHttpTokensStateRequired, HttpPutResponseHopLimit: aws.Int32(2),
		},
		BlockDeviceMappings: []types.LaunchTemplateBlockDeviceMappingRequest{{
			DeviceName: aws.String("/dev/xvda"),
			Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{
				VolumeSize: aws.Int32(40),
				VolumeType: types.VolumeTypeGp3,
				Encrypted:  aws.Bool(true),
			},
		}},
		TagSpecifications: []types.LaunchTemplateTagSpecificationRequest{{
			ResourceType: types.ResourceTypeNetworkInterface, Tags: tags("from", "template"),
		}},
	}
	if edit != nil {
		edit(data)
	}
	out := must(a.CreateLaunchTemplate(t.Context(), &awsec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String(name), LaunchTemplateData: data,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeLaunchTemplate, Tags: tags("cluster", "blue")}},
	}))(t)
	return out.LaunchTemplate
}

// fleetOf requests n on-demand instances of one of the types in any zone.
func (a *account) fleetOf(template string, n int32, instanceTypes ...types.InstanceType) *awsec2.CreateFleetInput {
	config := types.FleetLaunchTemplateConfigRequest{
		LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{
			LaunchTemplateName: aws.String(template), Version: aws.String("$Latest"),
		},
	}
	for _, typ := range instanceTypes {
		for _, subnet := range a.subnets {
			config.Overrides = append(
				config.Overrides,
				types.FleetLaunchTemplateOverridesRequest{InstanceType: typ, SubnetId: aws.String(subnet)},
			)
		}
	}
	return &awsec2.CreateFleetInput{
		Type: types.FleetTypeInstant, LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{config},
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{
			TotalTargetCapacity: aws.Int32(n), DefaultTargetCapacityType: types.DefaultTargetCapacityTypeOnDemand,
		},
		TagSpecifications: []types.TagSpecification{
			{ResourceType: types.ResourceTypeInstance, Tags: tags("pool", "general")},
			{ResourceType: types.ResourceTypeVolume, Tags: tags("pool", "general")},
			{ResourceType: types.ResourceTypeFleet, Tags: tags("pool", "general")},
		},
	}
}

// describe returns the instances that match the filters.
func (a *account) describe(t testing.TB, filters ...types.Filter) []types.Instance {
	t.Helper()
	var all []types.Instance
	p := awsec2.NewDescribeInstancesPaginator(a, &awsec2.DescribeInstancesInput{Filters: filters})
	for p.HasMorePages() {
		for _, r := range must(p.NextPage(t.Context()))(t).Reservations {
			all = append(all, r.Instances...)
		}
	}
	return all
}

// free returns how many addresses each subnet has left.
func (a *account) free(t testing.TB) []int32 {
	t.Helper()
	out := must(a.DescribeSubnets(t.Context(), &awsec2.DescribeSubnetsInput{SubnetIds: a.subnets}))(t)
	free := make([]int32, len(a.subnets))
	for _, s := range out.Subnets {
		free[slices.Index(a.subnets, *s.SubnetId)] = *s.AvailableIpAddressCount
	}
	return free
}

func launchedIDs(out *awsec2.CreateFleetOutput) []string {
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, i.InstanceIds...)
	}
	return ids
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}

// tags makes tags of keys and values in turn.
func tags(pairs ...string) []types.Tag {
	var out []types.Tag
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, types.Tag{Key: aws.String(pairs[i]), Value: aws.String(pairs[i+1])})
	}
	return out
}

// tagValue returns the value of a tag, empty when there is none.
func tagValue(list []types.Tag, key string) string {
	for _, t := range list {
		if *t.Key == key {
			return *t.Value
		}
	}
	return ""
}

// must returns a function that gives the answer of a call that has to succeed: must(call())(t).
func must[T any](out T, err error) func(testing.TB) T { return awsimtest.OK(out, err) }

// foreignGroup makes a security group in a VPC of its own.
func (a *account) foreignGroup() string {
	vpc, err := a.Sim.EC2().AddVPC(ec2.VPC{CIDR: netip.MustParsePrefix("10.9.0.0/16")})
	if err != nil {
		return err.Error()
	}
	group, err := a.Sim.EC2().AddSecurityGroup(ec2.SecurityGroup{VPCID: vpc, Name: "other"})
	if err != nil {
		return err.Error()
	}
	return group
}

// retryNow retries three times without waiting.
func retryNow() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 3
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
	})
}

// imageNamed returns the ID of a public image.
func imageNamed(name string) string {
	for _, img := range image.List("us-east-1") {
		if img.Name == name {
			return img.ID
		}
	}
	return ""
}
