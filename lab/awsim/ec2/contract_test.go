package ec2_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
)

// TestEveryTypeIsDescribed: what EC2 always reports of a type is the same for every type, so that nobody who relies on it is
// let down by the one that lacks it.
func TestEveryTypeIsDescribed(t *testing.T) {
	a := open(t)
	count := 0
	p := awsec2.NewDescribeInstanceTypesPaginator(
		a,
		&awsec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100), Filters: []types.Filter{
			filter("supported-virtualization-type", "hvm"), filter("processor-info.supported-architecture", "x86_64", "arm64"),
		}},
	)
	for p.HasMorePages() {
		for _, i := range must(p.NextPage(t.Context()))(t).InstanceTypes {
			count++
			if lacks := lacking(i); len(lacks) > 0 {
				t.Errorf("%s lacks %v", i.InstanceType, lacks)
			}
		}
	}
	if count < 600 {
		t.Errorf("%d types", count)
	}
}

func lacking(i types.InstanceTypeInfo) (names []string) {
	for name, there := range map[string]bool{
		"vCPUs": i.VCpuInfo != nil && i.VCpuInfo.DefaultVCpus != nil, "memory": i.MemoryInfo != nil && i.MemoryInfo.SizeInMiB != nil,
		"processor": i.ProcessorInfo != nil && len(i.ProcessorInfo.SupportedArchitectures) > 0, "usage classes": len(i.SupportedUsageClasses) > 0,
		"enclaves": i.NitroEnclavesSupport != "", "EBS": i.EbsInfo != nil && i.EbsInfo.EbsOptimizedSupport != "",
		"placement groups": i.PlacementGroupInfo != nil && len(i.PlacementGroupInfo.SupportedStrategies) > 0,
		"hypervisor":       i.Hypervisor != "" || *i.BareMetal,
		"storage":          !*i.InstanceStorageSupported || i.InstanceStorageInfo != nil && i.InstanceStorageInfo.TotalSizeInGB != nil,
	} {
		if !there {
			names = append(names, name)
		}
	}
	n := i.NetworkInfo
	if n == nil || n.EncryptionInTransitSupported == nil || n.EnaSupport == "" || n.DefaultNetworkCardIndex == nil || n.Ipv4AddressesPerInterface == nil ||
		len(n.NetworkCards) == 0 ||
		*n.EfaSupported != (n.EfaInfo != nil) {
		return append(names, "network")
	}
	for _, card := range n.NetworkCards {
		if card.NetworkCardIndex == nil || card.MaximumNetworkInterfaces == nil || *card.MaximumNetworkInterfaces < 1 {
			names = append(names, "network card")
		}
	}
	if i.GpuInfo != nil {
		for _, g := range i.GpuInfo.Gpus {
			if g.Name == nil || g.Manufacturer == nil || g.Count == nil || g.MemoryInfo == nil || g.MemoryInfo.SizeInMiB == nil {
				names = append(names, "GPU")
			}
		}
	}
	if i.NeuronInfo != nil {
		for _, d := range i.NeuronInfo.NeuronDevices {
			if d.Name == nil || d.Count == nil || d.CoreInfo == nil || d.CoreInfo.Count == nil {
				names = append(names, "Neuron device")
			}
		}
	}
	if i.InferenceAcceleratorInfo != nil {
		for _, d := range i.InferenceAcceleratorInfo.Accelerators {
			if d.Name == nil || d.Manufacturer == nil || d.Count == nil {
				names = append(names, "accelerator")
			}
		}
	}
	return names
}

// busy is an account with eight of everything that is listed page by page.
func busy(t *testing.T) *account {
	t.Helper()
	a := open(t)
	for n := range 8 {
		must(a.Sim.EC2().AddSubnet(ec2.Subnet{
			VPCID: a.vpc, Zone: "us-east-1a", CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(100 + n), 0}), 24),
		}))(t)
		must(a.Sim.EC2().AddSecurityGroup(ec2.SecurityGroup{VPCID: a.vpc, Name: fmt.Sprint("group ", n)}))(t)
		must(
			a.Sim.AddCapacityReservation(awsim.CapacityReservation{InstanceType: "m5.large", Zone: "us-east-1a", Total: 1, Targeted: true}),
		)(
			t,
		)
		a.Sim.EC2().AddImage(image.Image{Name: fmt.Sprint("image ", n), Architecture: "x86_64", Created: a.Clock.Now()}, nil)
		a.template(t, fmt.Sprint("template-", n), nil)
	}
	must(a.CreateFleet(t.Context(), a.fleetOf("template-0", 8, "m5.large")))(t)
	a.Clock.Advance(time.Minute)
	return a
}

func ids[T any](list []T, id func(T) *string) []string {
	var out []string
	for _, t := range list {
		out = append(out, *id(t))
	}
	return out
}

// TestPages: page by page, every list is the same as in one piece.
func TestPages(t *testing.T) {
	a := busy(t)
	ctx := t.Context()
	for name, c := range map[string]struct {
		size int32
		page func(size *int32, token *string) ([]string, *string, error)
	}{
		"DescribeInstanceTypeOfferings": {7, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeInstanceTypeOfferings(ctx, &awsec2.DescribeInstanceTypeOfferingsInput{
				LocationType: types.LocationTypeAvailabilityZone, MaxResults: size, NextToken: token, Filters: []types.Filter{filter("instance-type",
					"m5.*")},
			})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.InstanceTypeOfferings, func(o types.InstanceTypeOffering) *string { return aws.String(string(o.InstanceType) + *o.Location) }), out.NextToken, nil
		}},
		"DescribeSubnets": {5, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeSubnets(ctx, &awsec2.DescribeSubnetsInput{MaxResults: size, NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.Subnets, func(s types.Subnet) *string { return s.SubnetId }), out.NextToken, nil
		}},
		"DescribeSecurityGroups": {5, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeSecurityGroups(ctx, &awsec2.DescribeSecurityGroupsInput{MaxResults: size, NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.SecurityGroups, func(g types.SecurityGroup) *string { return g.GroupId }), out.NextToken, nil
		}},
		"DescribeImages": {3, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeImages(ctx, &awsec2.DescribeImagesInput{Owners: []string{"self"}, MaxResults: size, NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.Images, func(i types.Image) *string { return i.ImageId }), out.NextToken, nil
		}},
		"DescribeCapacityReservations": {1, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeCapacityReservations(ctx, &awsec2.DescribeCapacityReservationsInput{MaxResults: size, NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.CapacityReservations, func(r types.CapacityReservation) *string { return r.CapacityReservationId }), out.NextToken, nil
		}},
		"DescribeSpotPriceHistory": {4, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeSpotPriceHistory(ctx, &awsec2.DescribeSpotPriceHistoryInput{
				InstanceTypes: []types.InstanceType{"m5.large", "c5.large"}, ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
				StartTime: aws.Time(a.Clock.Now()), MaxResults: size, NextToken: token,
			})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.SpotPriceHistory, func(p types.SpotPrice) *string {
				return aws.String(string(p.InstanceType) + *p.AvailabilityZone + string(p.ProductDescription))
			}), out.NextToken, nil
		}},
		"DescribeLaunchTemplates": {2, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeLaunchTemplates(ctx, &awsec2.DescribeLaunchTemplatesInput{
				MaxResults: size, NextToken: token, Filters: []types.Filter{filter("tag:cluster", "blue")},
			})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.LaunchTemplates, func(l types.LaunchTemplate) *string { return l.LaunchTemplateName }), out.NextToken, nil
		}},
		"DescribeInstances": {5, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{MaxResults: size, NextToken: token, Filters: []types.Filter{filter("tag-key", "pool")}})
			if err != nil {
				return nil, nil, err
			}
			var all []types.Instance
			for _, r := range out.Reservations {
				all = append(all, r.Instances...)
			}
			return ids(all, func(i types.Instance) *string { return i.InstanceId }), out.NextToken, nil
		}},
		"DescribeInstanceStatus": {5, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeInstanceStatus(ctx, &awsec2.DescribeInstanceStatusInput{MaxResults: size, NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.InstanceStatuses, func(s types.InstanceStatus) *string { return s.InstanceId }), out.NextToken, nil
		}},
		"DescribeVolumes": {5, func(size *int32, token *string) ([]string, *string, error) {
			out, err := a.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{MaxResults: size, NextToken: token})
			if err != nil {
				return nil, nil, err
			}
			return ids(out.Volumes, func(v types.Volume) *string { return v.VolumeId }), out.NextToken, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			whole, more, err := c.page(nil, nil)
			if err != nil || more != nil || len(whole) < 8 {
				t.Fatalf("in one piece: %d, more %v, %v", len(whole), more, err)
			}
			var got []string
			for token, first := (*string)(nil), true; (first || token != nil) && len(got) <= len(whole); first = false {
				var part []string
				if part, token, err = c.page(&c.size, token); err != nil {
					t.Fatal(err)
				}
				if len(part) > int(c.size) || token != nil && len(part) < int(c.size) {
					t.Errorf("a page of %d with %d", c.size, len(part))
				}
				got = append(got, part...)
			}
			if !slices.Equal(got, whole) {
				t.Errorf("page by page %v\nin one piece %v", got, whole)
			}
		})
	}
}
