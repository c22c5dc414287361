package instancetype_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// absent sets how the tables below write a label that nodes must not have.
const absent = "(absent)"

// labels writes a set as one string per key.
func labels(set requirement.Set) map[string]string {
	m := map[string]string{}
	for _, r := range set.All() {
		m[r.Key()] = strings.Join(r.Values(), ",")
		if r.Operator() == corev1.NodeSelectorOpDoesNotExist {
			m[r.Key()] = absent
		}
	}
	return m
}

func TestLabelsOfAType(t *testing.T) {
	got := labels(resolve(t, "g5.12xlarge", class(awsv1.AMIFamilyAL2023)).Requirements)
	want := map[string]string{
		corev1.LabelInstanceTypeStable:         "g5.12xlarge",
		corev1.LabelTopologyRegion:             "us-east-1",
		corev1.LabelTopologyZone:               "us-east-1a,us-east-1b",
		corev1.LabelArchStable:                 "amd64",
		corev1.LabelOSStable:                   "linux",
		corev1.LabelWindowsBuild:               absent,
		karpv1.LabelCapacityType:               "on-demand,spot",
		awsv1.LabelZoneID:                      "use1-az1",
		awsv1.LabelInstanceTenancy:             "dedicated,default",
		awsv1.LabelInstanceCategory:            "g",
		awsv1.LabelInstanceGeneration:          "5",
		awsv1.LabelInstanceFamily:              "g5",
		awsv1.LabelInstanceSize:                "12xlarge",
		awsv1.LabelInstanceCapabilityFlex:      "false",
		awsv1.LabelInstanceCPU:                 "48",
		awsv1.LabelInstanceCPUManufacturer:     "amd",
		awsv1.LabelInstanceCPUClockSpeed:       "3300",
		awsv1.LabelInstanceMemory:              "196608",
		awsv1.LabelInstanceHypervisor:          "nitro",
		awsv1.LabelInstanceEncryptionInTransit: "true",
		awsv1.LabelInstanceLocalNVMe:           "3800",
		awsv1.LabelInstanceEBSBandwidth:        "16000",
		awsv1.LabelInstanceNetworkBandwidth:    "40000",
		awsv1.LabelInstanceGPUName:             "a10g",
		awsv1.LabelInstanceGPUManufacturer:     "nvidia",
		awsv1.LabelInstanceGPUCount:            "4",
		awsv1.LabelInstanceGPUMemory:           "22888",
		awsv1.LabelInstanceAcceleratorName:     absent,
		awsv1.LabelInstanceAcceleratorManuf:    absent,
		awsv1.LabelInstanceAcceleratorCount:    absent,
		awsv1.LabelReservationID:               absent,
		awsv1.LabelReservationType:             absent,
		awsv1.LabelReservationInterruptible:    absent,
		awsv1.LabelPlacementGroupID:            absent,
		awsv1.LabelPlacementGroupPartition:     absent,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLabels(t *testing.T) {
	al2023 := class(awsv1.AMIFamilyAL2023)
	for _, test := range []struct {
		name, instanceType string
		class              instancetype.Class
		want               map[string]string
	}{
		{"no disks, no devices", "m5.xlarge", al2023, map[string]string{
			awsv1.LabelInstanceLocalNVMe: absent, awsv1.LabelInstanceGPUName: absent, awsv1.LabelInstanceGPUManufacturer: absent,
			awsv1.LabelInstanceGPUCount: absent, awsv1.LabelInstanceGPUMemory: absent, awsv1.LabelInstanceEncryptionInTransit: "false",
			awsv1.LabelInstanceEBSBandwidth: "4750", awsv1.LabelInstanceNetworkBandwidth: "1250", awsv1.LabelInstanceCPUManufacturer: "intel",
		}},
		{"arm", "m7g.medium", al2023, map[string]string{
			corev1.LabelArchStable: "arm64", awsv1.LabelInstanceCPUManufacturer: "aws", awsv1.LabelInstanceCPU: "1",
			awsv1.LabelInstanceMemory: "4096",
		}},
		{"flex", "c7i-flex.large", al2023, map[string]string{
			awsv1.LabelInstanceFamily: "c7i-flex", awsv1.LabelInstanceCategory: "c", awsv1.LabelInstanceCapabilityFlex: "true",
		}},
		{"high memory", "u-6tb1.112xlarge", al2023, map[string]string{
			awsv1.LabelInstanceCategory: "u", awsv1.LabelInstanceGeneration: "1", awsv1.LabelInstanceFamily: "u-6tb1",
		}},
		{"bare metal", "m7i.metal-24xl", al2023, map[string]string{
			awsv1.LabelInstanceSize: "metal-24xl", awsv1.LabelInstanceHypervisor: "",
		}},
		{"high memory, seventh generation", "u7in-24tb.224xlarge", al2023, map[string]string{
			awsv1.LabelInstanceCategory: "u", awsv1.LabelInstanceGeneration: "7",
		}},
		{"unknown clock", "m1.small", al2023, map[string]string{awsv1.LabelInstanceCPUClockSpeed: absent}},
		{"Neuron wins over inference accelerator", "inf2.24xlarge", al2023, map[string]string{
			awsv1.LabelInstanceAcceleratorName: "inferentia2", awsv1.LabelInstanceAcceleratorManuf: "aws", awsv1.LabelInstanceAcceleratorCount: "6",
			awsv1.LabelInstanceGPUName: absent,
		}},
		{"training", "trn1.32xlarge", al2023, map[string]string{
			awsv1.LabelInstanceAcceleratorName: "trainium", awsv1.LabelInstanceAcceleratorCount: "16", awsv1.LabelInstanceNetworkBandwidth: "800000",
		}},
		{"a GPU of two words", "g4ad.xlarge", al2023, map[string]string{
			awsv1.LabelInstanceGPUName: "radeon-pro-v520", awsv1.LabelInstanceGPUManufacturer: "amd",
		}},
		{"disks that are no NVMe", "d2.xlarge", al2023, map[string]string{
			awsv1.LabelInstanceLocalNVMe:  absent,
			awsv1.LabelInstanceHypervisor: "xen",
		}},
		{"no baseline bandwidth known", "t2.small", al2023, map[string]string{
			awsv1.LabelInstanceNetworkBandwidth: absent, awsv1.LabelInstanceEBSBandwidth: absent,
		}},
		{"Windows", "m5.large", class(awsv1.AMIFamilyWindows2022), map[string]string{
			corev1.LabelOSStable: "windows", corev1.LabelWindowsBuild: "10.0.20348",
		}},
		{"Windows on Arm cannot be", "m7g.large", class(awsv1.AMIFamilyWindows2019), map[string]string{
			corev1.LabelOSStable: absent, corev1.LabelWindowsBuild: "10.0.17763",
		}},
		{"sold on demand only", "u7in-24tb.224xlarge", al2023, map[string]string{karpv1.LabelCapacityType: "on-demand"}},
		{"32 bits first", "t2.small", al2023, map[string]string{corev1.LabelArchStable: "amd64"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := labels(resolve(t, test.instanceType, test.class).Requirements)
			for key, want := range test.want {
				if value, ok := got[key]; !ok || value != want {
					t.Errorf("%s is %q (present %v), want %q", key, value, ok, want)
				}
			}
		})
	}
}

func TestTypesWithTwoKindsOfDevicesHaveNoDeviceLabels(t *testing.T) {
	i := info(t, "g5.xlarge")
	i.GpuInfo = &ec2types.GpuInfo{
		Gpus: []ec2types.GpuDeviceInfo{i.GpuInfo.Gpus[0], {Name: aws.String("T4"), Manufacturer: aws.String("NVIDIA"), Count: aws.Int32(2)}},
	}
	it := resolved(t, settings, i, class(awsv1.AMIFamilyAL2023), market())
	if got := labels(it.Requirements)[awsv1.LabelInstanceGPUCount]; got != absent {
		t.Errorf("GPU count label is %q", got)
	}
	if got := it.Capacity[awsv1.ResourceNVIDIAGPU]; got.Value() != 3 {
		t.Errorf("%v GPUs, want 3", got.Value())
	}
}

// An inference accelerator that EC2 does not also call a Neuron device.
func TestInferenceAccelerator(t *testing.T) {
	i := info(t, "inf1.6xlarge")
	i.NeuronInfo = nil
	got := labels(resolved(t, settings, i, class(awsv1.AMIFamilyAL2023), market()).Requirements)
	want := map[string]string{
		awsv1.LabelInstanceAcceleratorName: "inferentia", awsv1.LabelInstanceAcceleratorManuf: "aws", awsv1.LabelInstanceAcceleratorCount: "4",
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s is %q, want %q", key, got[key], value)
		}
	}
}

func TestTypesWithUnusualNames(t *testing.T) {
	i := info(t, "m5.large")
	i.InstanceType = "mac-m4.metal"
	i.ProcessorInfo = nil
	i.VCpuInfo, i.MemoryInfo, i.NetworkInfo, i.EbsInfo = nil, nil, nil, nil
	it := resolved(t, settings, i, class(awsv1.AMIFamilyAL2023), market())
	got := labels(it.Requirements)
	for key, want := range map[string]string{
		awsv1.LabelInstanceCategory: absent, awsv1.LabelInstanceGeneration: absent, awsv1.LabelInstanceFamily: "mac-m4",
		awsv1.LabelInstanceCPUManufacturer: absent, awsv1.LabelInstanceCPUClockSpeed: absent, corev1.LabelArchStable: "[]",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if pods(it) != 0 {
		t.Errorf("%d pods without a network", pods(it))
	}
}

// offered lists the available offerings.
func offered(it *catalog.InstanceType) []string {
	list := []string{}
	for _, o := range it.Offerings {
		if o.Available {
			list = append(list, o.CapacityType+" "+o.Zone)
		}
	}
	return list
}

func TestOfferings(t *testing.T) {
	all := []string{"on-demand us-east-1a", "spot us-east-1a", "on-demand us-east-1b", "spot us-east-1b"}
	for _, test := range []struct {
		name, instanceType string
		class              instancetype.Class
		market             func(*instancetype.Market)
		want               []string
	}{
		{"all zones with a subnet", "m5.large", class(awsv1.AMIFamilyAL2023), nil, all},
		{"zones that EC2 has it in", "m5.large", class(awsv1.AMIFamilyAL2023), func(m *instancetype.Market) {
			m.Offered = func(name, zone string) bool { return name == "m5.large" && zone != "us-east-1b" }
		}, all[:2]},
		{"no price on demand", "m5.large", class(awsv1.AMIFamilyAL2023), func(m *instancetype.Market) {
			m.OnDemand = func(string) (float64, bool) { return 0, false }
		}, []string{"spot us-east-1a", "spot us-east-1b"}},
		{"spot without a price in one zone", "m5.large", class(awsv1.AMIFamilyAL2023), func(m *instancetype.Market) {
			m.Spot = func(name, zone string) (float64, bool) { return 0.1, name == "m5.large" && zone == "us-east-1b" }
		}, []string{"on-demand us-east-1a", "on-demand us-east-1b", "spot us-east-1b"}},
		{"lately out of capacity", "m5.large", class(awsv1.AMIFamilyAL2023), func(m *instancetype.Market) {
			m.Unavailable = func(p instancetype.PartitionedOffering) bool {
				return p.OfferingKey == catalog.OfferingKey{InstanceType: "m5.large", Zone: "us-east-1a", CapacityType: karpv1.CapacityTypeSpot} && p.Partition == ""
			}
		}, []string{"on-demand us-east-1a", "on-demand us-east-1b", "spot us-east-1b"}},
		{"a1 does not boot AL2023", "a1.large", class(awsv1.AMIFamilyAL2023), nil, nil},
		{"a1 boots Bottlerocket", "a1.large", class(awsv1.AMIFamilyBottlerocket), nil, all},
		{"EFA where there is", "c5n.18xlarge", class(awsv1.AMIFamilyAL2023, efaOnly(0)), nil, all},
		{"EFA where there is none", "m5.large", class(awsv1.AMIFamilyAL2023, efaOnly(0)), nil, nil},
		{"more EFA than there is", "m6idn.32xlarge", class(awsv1.AMIFamilyAL2023, efaOnly(0, 1, 1)), nil, nil},
		{"interfaces on a card that is not there", "m5.large", class(awsv1.AMIFamilyAL2023, interfaceAt(1, 0)), nil, nil},
		{"the last interface of a card", "m5.large", class(awsv1.AMIFamilyAL2023, interfaceAt(0, 2)), nil, all},
		{"one interface too many", "m5.large", class(awsv1.AMIFamilyAL2023, interfaceAt(0, 3)), nil, nil},
		{"a layout without ENA", "t2.large", class(awsv1.AMIFamilyAL2023, interfaceAt(0, 0)), nil, nil},
		{"a price of zero is none", "m5.large", class(awsv1.AMIFamilyAL2023), func(m *instancetype.Market) {
			m.Spot = func(string, string) (float64, bool) { return 0, true }
		}, []string{"on-demand us-east-1a", "on-demand us-east-1b"}},
		{"a zone that the cluster keeps away from", "m5.large", class(awsv1.AMIFamilyAL2023), func(m *instancetype.Market) {
			m.ZoneShifted = func(zone string) bool { return zone == "us-east-1a" }
		}, all[2:]},
		{"swap on", "c1.medium", class(awsv1.AMIFamilyAL2023), nil, nil},
		{"swap on, in an image of one's own", "c1.medium", class(awsv1.AMIFamilyCustom), nil, all},
		{"Windows on Arm", "m6g.large", class(awsv1.AMIFamilyWindows2022), nil, nil},
		{"connection tracking on Nitro", "m5.large", class(awsv1.AMIFamilyAL2023, connectionTracking), nil, all},
		{"connection tracking on Xen", "m4.large", class(awsv1.AMIFamilyAL2023, connectionTracking), nil, nil},
		{
			"nested virtualisation", "m5.large", class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) { c.NestedVirtualization = true }), nil,
			nil,
		},
		{"enclaves", "m5.xlarge", class(awsv1.AMIFamilyAL2023, enclaves), nil, all},
		{"enclaves where there are none", "t2.large", class(awsv1.AMIFamilyAL2023, enclaves), nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := market()
			if test.market != nil {
				test.market(&m)
			}
			it := resolved(t, settings, info(t, test.instanceType), test.class, m)
			if got := offered(it); !slices.Equal(got, test.want) {
				t.Errorf("available: %q, want %q", got, test.want)
			}
			if len(it.Offerings) != 6 {
				t.Errorf("%d offerings listed, want one for each of 3 zones and 2 capacity types", len(it.Offerings))
			}
		})
	}
}

func interfaceAt(card, device int32) func(*instancetype.Class) {
	return func(c *instancetype.Class) {
		c.NetworkInterfaces = []awsv1.NetworkInterface{
			{NetworkCardIndex: card, DeviceIndex: device, InterfaceType: awsv1.InterfaceTypeInterface},
		}
	}
}

func enclaves(c *instancetype.Class) { c.Enclaves = true }

func connectionTracking(c *instancetype.Class) { c.ConnectionTracking = true }

func TestNestedVirtualizationWhereSupported(t *testing.T) {
	i := info(t, "m5.large")
	i.ProcessorInfo.SupportedFeatures = []ec2types.SupportedAdditionalProcessorFeature{"nested-virtualization"}
	c := class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) { c.NestedVirtualization = true })
	if got := offered(resolved(t, settings, i, c, market())); len(got) != 4 {
		t.Errorf("available: %q, want all", got)
	}
}

func TestOfferingLabelsAndPrices(t *testing.T) {
	it := resolve(t, "m5.large", class(awsv1.AMIFamilyAL2023))
	first, third := it.Offerings[1], it.Offerings[2]
	if first.Price != 0.3 || third.Price != 1 {
		t.Errorf("spot costs %v, on demand %v", first.Price, third.Price)
	}
	want := map[string]string{
		karpv1.LabelCapacityType: "spot", corev1.LabelTopologyZone: "us-east-1a", awsv1.LabelZoneID: "use1-az1",
		awsv1.LabelReservationID: absent, awsv1.LabelReservationType: absent, awsv1.LabelReservationInterruptible: absent,
	}
	if diff := cmp.Diff(want, labels(first.Requirements)); diff != "" {
		t.Error(diff)
	}
	if labels(third.Requirements)[awsv1.LabelZoneID] != "" {
		t.Error("a zone without a subnet with its ID has an ID")
	}
	cheapest, ok := it.Cheapest(requirement.NewSet(requirement.In(corev1.LabelTopologyZone, "us-east-1b")))
	if !ok || cheapest.CapacityType != karpv1.CapacityTypeSpot || cheapest.Zone != "us-east-1b" {
		t.Errorf("cheapest in us-east-1b: %+v, %v", cheapest, ok)
	}
}
