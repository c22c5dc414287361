package launch

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

func templateSpec(change func(*TemplateSpec)) TemplateSpec {
	b := TemplateSpec{
		Class: newOrder().Class, ImageID: "ami-1", UserData: "hello", CapacityType: "on-demand", Tenancy: "default", Region: "us-east-1",
		Tags: blue.LaunchTags("default", "general", nil), ReservedCapacity: true,
	}
	b.Class.Spec.MetadataOptions = &awsv1.MetadataOptions{
		HTTPEndpoint:            "enabled",
		HTTPProtocolIPv6:        "disabled",
		HTTPPutResponseHopLimit: aws.Int64(1),
		HTTPTokens:              "required",
	}
	if change != nil {
		change(&b)
	}
	return b
}

func template(t *testing.T, b TemplateSpec) *ec2.CreateLaunchTemplateInput {
	t.Helper()
	in, err := Template(b)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestTemplateName(t *testing.T) {
	name := func(change func(*TemplateSpec)) string { return *template(t, templateSpec(change)).LaunchTemplateName }
	same := name(nil)
	for what, change := range map[string]func(*TemplateSpec){
		"the order of security groups": func(b *TemplateSpec) {
			b.Class.Status.SecurityGroups = []awsv1.SecurityGroup{{ID: "sg-1"}, {ID: "sg-2"}}
		},
		"subnets": func(b *TemplateSpec) { b.Class.Status.Subnets = nil },
	} {
		if name(change) != same {
			t.Errorf("%s changes the name", what)
		}
	}
	seen := map[string]string{same: "nothing"}
	for what, change := range map[string]func(*TemplateSpec){
		"another cluster of the same name": func(b *TemplateSpec) {
			green := blue
			green.ClusterUID = "uid-green"
			b.Tags = green.LaunchTags("default", "general", nil)
		},
		"another pool":     func(b *TemplateSpec) { b.Tags = blue.LaunchTags("default", "other", nil) },
		"image":            func(b *TemplateSpec) { b.ImageID = "ami-2" },
		"user data":        func(b *TemplateSpec) { b.UserData = "bye" },
		"capacity type":    func(b *TemplateSpec) { b.CapacityType = "spot" },
		"tenancy":          func(b *TemplateSpec) { b.Tenancy = "dedicated" },
		"EFA":              func(b *TemplateSpec) { b.EFAs = 1 },
		"enclave":          func(b *TemplateSpec) { b.Class.Spec.EnclaveOptions = &awsv1.EnclaveOptions{Enabled: true} },
		"instance profile": func(b *TemplateSpec) { b.Class.Status.InstanceProfile = "other" },
		"security groups":  func(b *TemplateSpec) { b.Class.Status.SecurityGroups = b.Class.Status.SecurityGroups[:1] },
	} {
		n := name(change)
		if other, taken := seen[n]; taken {
			t.Errorf("%s has the same name as %s", what, other)
		}
		seen[n] = what
	}
}

func TestTemplateContent(t *testing.T) {
	gi := func(s string) *resource.Quantity { q := resource.MustParse(s); return &q }
	for _, tc := range []struct {
		name   string
		change func(*TemplateSpec)
		want   func(d *ec2types.RequestLaunchTemplateData) bool
	}{
		{"groups are on the interface", nil, func(d *ec2types.RequestLaunchTemplateData) bool {
			return len(d.SecurityGroupIds) == 0 && len(d.NetworkInterfaces) == 1 && len(d.NetworkInterfaces[0].Groups) == 2 && *d.NetworkInterfaces[0].DeviceIndex == 0 && d.NetworkInterfaces[0].InterfaceType == nil
		}},
		{"the family's disk", nil, func(d *ec2types.RequestLaunchTemplateData) bool {
			m := d.BlockDeviceMappings
			return len(m) == 1 && *m[0].DeviceName == "/dev/xvda" && *m[0].Ebs.VolumeSize == 20 && m[0].Ebs.VolumeType == "gp3" && *m[0].Ebs.Encrypted
		}},
		{
			"Custom has no disks of ours", func(b *TemplateSpec) { b.Class.Spec.AMIFamily = "Custom" },
			func(d *ec2types.RequestLaunchTemplateData) bool { return d.BlockDeviceMappings == nil },
		},
		{"20G are 19 GiB", func(b *TemplateSpec) {
			b.Class.Spec.BlockDeviceMappings = []awsv1.BlockDeviceMapping{{DeviceName: "/dev/xvda", EBS: &awsv1.BlockDevice{VolumeSize: gi("20G"), IOPS: aws.Int64(0), Throughput: aws.Int64(250)}}}
		}, func(d *ec2types.RequestLaunchTemplateData) bool {
			e := d.BlockDeviceMappings[0].Ebs
			return *e.VolumeSize == 19 && e.Iops == nil && *e.Throughput == 250
		}},
		{"a device without EBS", func(b *TemplateSpec) {
			b.Class.Spec.BlockDeviceMappings = []awsv1.BlockDeviceMapping{{DeviceName: "/dev/xvdb"}}
		}, func(d *ec2types.RequestLaunchTemplateData) bool { return d.BlockDeviceMappings[0].Ebs == nil }},
		{"spot requests are tagged", func(b *TemplateSpec) { b.CapacityType = "spot" }, func(d *ec2types.RequestLaunchTemplateData) bool {
			return len(d.TagSpecifications) == 2 && d.TagSpecifications[1].ResourceType == "spot-instances-request"
		}},
		{"EFA interfaces, one per card", func(b *TemplateSpec) { b.EFAs = 3 }, func(d *ec2types.RequestLaunchTemplateData) bool {
			n := d.NetworkInterfaces
			return len(n) == 3 && *n[0].DeviceIndex == 0 && *n[2].DeviceIndex == 1 && *n[2].NetworkCardIndex == 2 && *n[1].InterfaceType == "efa"
		}},
		{"no public address on an EFA-only interface", func(b *TemplateSpec) {
			b.Class.Spec.AssociatePublicIPAddress = aws.Bool(true)
			b.Class.Spec.NetworkInterfaces = []awsv1.NetworkInterface{{InterfaceType: "interface"}, {NetworkCardIndex: 1, DeviceIndex: 1, InterfaceType: "efa-only"}}
		}, func(d *ec2types.RequestLaunchTemplateData) bool {
			n := d.NetworkInterfaces
			return *n[0].AssociatePublicIpAddress && n[1].AssociatePublicIpAddress == nil
		}},
		{
			"prefixes on IPv4", func(b *TemplateSpec) { b.Class.Spec.IPPrefixCount = aws.Int32(2) },
			func(d *ec2types.RequestLaunchTemplateData) bool {
				n := d.NetworkInterfaces[0]
				return *n.Ipv4PrefixCount == 2 && n.Ipv6PrefixCount == nil && n.PrimaryIpv6 == nil
			},
		},
		{
			"prefixes on IPv6", func(b *TemplateSpec) { b.IPv6 = true; b.Class.Spec.IPPrefixCount = aws.Int32(2) },
			func(d *ec2types.RequestLaunchTemplateData) bool {
				n := d.NetworkInterfaces[0]
				return *n.Ipv6PrefixCount == 2 && *n.PrimaryIpv6 && *n.Ipv6AddressCount == 1 && n.Ipv4PrefixCount == nil
			},
		},
		{"open reservations are left alone", nil, func(d *ec2types.RequestLaunchTemplateData) bool {
			return d.CapacityReservationSpecification.CapacityReservationPreference == "none"
		}},
		{
			"reservations unheard of with the gate off", func(b *TemplateSpec) { b.ReservedCapacity = false },
			func(d *ec2types.RequestLaunchTemplateData) bool { return d.CapacityReservationSpecification == nil },
		},
		{
			"a region without IPv6 metadata", func(b *TemplateSpec) { b.Region = "us-iso-east-1" },
			func(d *ec2types.RequestLaunchTemplateData) bool { return d.MetadataOptions.HttpProtocolIpv6 == "" },
		},
		{"metadata", nil, func(d *ec2types.RequestLaunchTemplateData) bool {
			m := d.MetadataOptions
			return m.HttpTokens == "required" && *m.HttpPutResponseHopLimit == 1 && m.HttpProtocolIpv6 == "disabled" && m.InstanceMetadataTags == "disabled"
		}},
		{
			"no metadata options leave it on", func(b *TemplateSpec) { b.Class.Spec.MetadataOptions = nil },
			func(d *ec2types.RequestLaunchTemplateData) bool { return d.MetadataOptions.HttpEndpoint == "enabled" },
		},
		{"no enclave", nil, func(d *ec2types.RequestLaunchTemplateData) bool { return !*d.EnclaveOptions.Enabled }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := template(t, templateSpec(tc.change)).LaunchTemplateData
			if !tc.want(data) {
				text, _ := json.MarshalIndent(data, "", "  ")
				t.Errorf("%s", text)
			}
		})
	}
}

// fleetFor is the request of a new process.
func fleetFor(t *testing.T, o Request) fleet {
	t.Helper()
	l := newFakeEC2().start(o).Launcher
	p, err := l.plan(o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.fleet(t.Context(), o, p)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFleetRequest(t *testing.T) {
	order := newOrder(
		instanceType(
			"m5.xlarge",
			nil,
			offering("spot", 0.05, "us-east-1a"),
			offering("on-demand", 0.2, "us-east-1a"),
			offering("spot", 0.04, "us-east-1z"),
		),
	)
	request := func(change func(*Request)) *ec2.CreateFleetInput {
		o := order
		o.Claim, o.Class = order.Claim.DeepCopy(), order.Class.DeepCopy()
		o.Class.Spec.Context = "ctx"
		if change != nil {
			change(&o)
		}
		return fleetFor(t, o).input()
	}
	spot := request(nil)
	o := spot.LaunchTemplateConfigs[0].Overrides
	if len(o) != 1 || o[0].InstanceType != "m5.xlarge" || *o[0].SubnetId != "subnet-a" || *o[0].ImageId != "ami-1" ||
		*o[0].AvailabilityZone != "us-east-1a" ||
		*o[0].Priority != 0.05 {
		t.Errorf("overrides: want the one in the zone with a subnet, got %+v", o)
	}
	if spot.Type != "instant" || *spot.TargetCapacitySpecification.TotalTargetCapacity != 1 ||
		spot.SpotOptions.AllocationStrategy != "price-capacity-optimized" ||
		spot.OnDemandOptions != nil ||
		*spot.Context != "ctx" {
		t.Errorf("%+v", spot)
	}
	od := request(func(o *Request) {
		o.Claim.Spec.Requirements[0].Operator, o.Claim.Spec.Requirements[0].Values = "In", []string{"on-demand"}
		o.Claim.Annotations = map[string]string{"karpenter.sh/nodeclaim-min-values-relaxed": "true"}
	})
	if od.OnDemandOptions.AllocationStrategy != "lowest-price" || od.SpotOptions != nil ||
		od.TargetCapacitySpecification.DefaultTargetCapacityType != "on-demand" {
		t.Errorf("%+v", od)
	}
	if od.Context != nil {
		t.Error("the context is sent although minValues were relaxed")
	}
	overlaid := request(func(o *Request) {
		o.Claim.Annotations = map[string]string{"karpenter.sh/price-overlay-applied": "true"}
	})
	if overlaid.SpotOptions.AllocationStrategy != "capacity-optimized-prioritized" {
		t.Errorf("with a price overlay: %s", overlaid.SpotOptions.AllocationStrategy)
	}
	// A NodeClaim of a static pool names no types, and so has no annotation about prices.
	overlaid = request(func(o *Request) {
		for _, t := range o.Types {
			for i := range t.Offerings {
				t.Offerings[i].PriceOverlaid = true
			}
		}
	})
	if overlaid.SpotOptions.AllocationStrategy != "capacity-optimized-prioritized" {
		t.Errorf("with a price overlay that the claim does not know of: %s", overlaid.SpotOptions.AllocationStrategy)
	}
}

func TestTemplatePerMaxPods(t *testing.T) {
	small := instanceType("m5.large", nil, offering("spot", 0.02, "us-east-1a"))
	small.Capacity = small.Capacity.DeepCopy()
	small.Capacity["pods"] = resource.MustParse("29")
	o := newOrder(
		small,
		instanceType("m5.xlarge", nil, offering("spot", 0.05, "us-east-1a")),
		instanceType("m6i.xlarge", nil, offering("spot", 0.04, "us-east-1a")),
	)
	f := fleetFor(t, o)
	if len(f.configs) != 2 || len(f.configs[0].Overrides) != 1 || len(f.configs[1].Overrides) != 2 {
		t.Errorf("types of 29 and 58 pods: %d templates", len(f.configs))
	}
}

func TestNoMoreOverridesThanEC2Takes(t *testing.T) {
	var types []*catalog.InstanceType
	var subnets []awsv1.Subnet
	for zone := range 6 {
		subnets = append(subnets, awsv1.Subnet{ID: fmt.Sprintf("subnet-%d", zone), Zone: fmt.Sprintf("z%d", zone)})
	}
	for n := range 60 {
		m := instanceType(fmt.Sprintf("t%02d.large", n), nil)
		for _, s := range subnets {
			m.Offerings = append(m.Offerings, offering("spot", float64(n+1), s.Zone))
		}
		types = append(types, m)
	}
	o := newOrder(types...)
	o.Class.Status.Subnets = subnets
	f := fleetFor(t, o)
	if got := f.configs[0].Overrides; len(got) != 300 || *got[299].Priority != 50 {
		t.Errorf("%d overrides, the last of price %v", len(got), *got[len(got)-1].Priority)
	}
}
