package ec2_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestParametersTakeEffect: what a launch requests is what the instance then has.
func TestParametersTakeEffect(t *testing.T) {
	nic := func(edit func(*types.InstanceNetworkInterfaceSpecification)) func(*account, *awsec2.RunInstancesInput) {
		return func(a *account, in *awsec2.RunInstancesInput) {
			spec := types.InstanceNetworkInterfaceSpecification{DeviceIndex: aws.Int32(0), SubnetId: in.SubnetId, Groups: []string{a.group}}
			edit(&spec)
			in.NetworkInterfaces, in.SubnetId, in.SecurityGroupIds = []types.InstanceNetworkInterfaceSpecification{spec}, nil, nil
		}
	}
	for name, c := range map[string]struct {
		edit func(*account, *awsec2.RunInstancesInput)
		got  func(a *account, i types.Instance) string
		want string
	}{
		"zone ID": {
			func(_ *account, in *awsec2.RunInstancesInput) {
				in.Placement = &types.Placement{AvailabilityZoneId: aws.String("use1-az1")}
			},
			func(_ *account, i types.Instance) string { return *i.Placement.AvailabilityZone },
			"us-east-1a",
		},
		"address of the interface": {
			nic(func(n *types.InstanceNetworkInterfaceSpecification) { n.PrivateIpAddress = aws.String("10.0.0.77") }),
			func(_ *account, i types.Instance) string { return *i.PrivateIpAddress },
			"10.0.0.77",
		},
		"secondary addresses": {
			nic(func(n *types.InstanceNetworkInterfaceSpecification) { n.SecondaryPrivateIpAddressCount = aws.Int32(3) }),
			func(a *account, i types.Instance) string {
				n := i.NetworkInterfaces[0].PrivateIpAddresses
				return fmt.Sprint(len(n), *n[0].Primary, *n[3].Primary, 251-a.free(t)[0])
			},
			"4 true false 4",
		},
		"name by ID": {
			func(_ *account, in *awsec2.RunInstancesInput) {
				in.PrivateDnsNameOptions = &types.PrivateDnsNameOptionsRequest{HostnameType: types.HostnameTypeResourceName}
			},
			func(_ *account, i types.Instance) string {
				return fmt.Sprint(*i.PrivateDnsName == *i.InstanceId+".ec2.internal")
			},
			"true",
		},
		"one thread per core": {
			func(_ *account, in *awsec2.RunInstancesInput) {
				in.CpuOptions = &types.CpuOptionsRequest{CoreCount: aws.Int32(1), ThreadsPerCore: aws.Int32(1)}
			},
			func(a *account, i types.Instance) string {
				return fmt.Sprint(*i.CpuOptions.CoreCount, *i.CpuOptions.ThreadsPerCore, a.Sim.Instances()[0].VCPUs)
			},
			"1 1 1",
		},
		"nested virtualization": {
			func(_ *account, in *awsec2.RunInstancesInput) {
				in.InstanceType = "m8i.large"
				in.CpuOptions = &types.CpuOptionsRequest{NestedVirtualization: types.NestedVirtualizationSpecificationEnabled}
			},
			func(_ *account, i types.Instance) string { return string(i.CpuOptions.NestedVirtualization) },
			"enabled",
		},
		"a price that is enough": {
			func(_ *account, in *awsec2.RunInstancesInput) {
				in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{
					MarketType: types.MarketTypeSpot, SpotOptions: &types.SpotMarketOptions{
						MaxPrice:         aws.String("9.5"),
						SpotInstanceType: types.SpotInstanceTypeOneTime,
					},
				}
			},
			func(_ *account, i types.Instance) string { return string(i.InstanceLifecycle) },
			"spot",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := open(t)
			in := &awsec2.RunInstancesInput{
				ImageId: aws.String(a.x86), InstanceType: "m5.large", MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
				SubnetId: aws.String(a.subnets[0]), SecurityGroupIds: []string{a.group},
			}
			c.edit(a, in)
			id := *must(a.RunInstances(t.Context(), in))(t).Instances[0].InstanceId
			a.Clock.Advance(time.Minute)
			if got := c.got(a, a.describe(t, filter("instance-id", id))[0]); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			must(a.TerminateInstances(t.Context(), &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))(t)
			a.Clock.Advance(time.Minute)
			if free := a.free(t)[0]; free != 251 {
				t.Errorf("%d addresses free after termination", free)
			}
		})
	}
}

// TestProcessorFeatures: the filter and the field agree, and only Intel from the seventh generation on nests.
func TestProcessorFeatures(t *testing.T) {
	a := open(t)
	families := map[string]bool{}
	p := awsec2.NewDescribeInstanceTypesPaginator(a, &awsec2.DescribeInstanceTypesInput{
		Filters: []types.Filter{filter("processor-info.supported-features", "nested-virtualization")}, MaxResults: aws.Int32(100),
	})
	for p.HasMorePages() {
		for _, i := range must(p.NextPage(t.Context()))(t).InstanceTypes {
			if f := i.ProcessorInfo.SupportedFeatures; len(f) != 1 || f[0] != types.SupportedAdditionalProcessorFeatureNestedVirtualization ||
				*i.BareMetal {
				t.Errorf("%s: features %v, bare metal %t", i.InstanceType, f, *i.BareMetal)
			}
			families[string(i.InstanceType)[:3]] = true
		}
	}
	if len(families) != 8 || !families["c8i"] || !families["m7i"] || !families["x8i"] || families["m6i"] {
		t.Errorf("families %v", families)
	}
	m5 := must(
		a.DescribeInstanceTypes(t.Context(), &awsec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m5.large"}}),
	)(
		t,
	)
	if f := m5.InstanceTypes[0].ProcessorInfo.SupportedFeatures; len(f) != 0 {
		t.Errorf("m5.large: features %v", f)
	}
}
