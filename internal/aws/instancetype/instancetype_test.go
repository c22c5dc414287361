package instancetype_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

var settings = instancetype.Settings{Region: "us-east-1", MemoryOverhead: 0.075}

// class is a node class of the family with subnets in zones a and b.
func class(family string, change ...func(*instancetype.Class)) instancetype.Class {
	c := instancetype.Class{
		Family: instancetype.FamilyOf(family),
		Subnets: []awsv1.Subnet{
			{ID: "subnet-1", Zone: "us-east-1a", ZoneID: "use1-az1"},
			{ID: "subnet-2", Zone: "us-east-1a", ZoneID: "use1-az1"},
			{ID: "subnet-3", Zone: "us-east-1b"},
		},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// market has three zones, offers everything everywhere, and costs 1 $/h, or 0.3 $/h for spot.
func market() instancetype.Market {
	return instancetype.Market{
		Zones:    []string{"us-east-1a", "us-east-1b", "us-east-1c"},
		Offered:  func(string, string) bool { return true },
		OnDemand: func(string) (float64, bool) { return 1, true },
		Spot:     func(string, string) (float64, bool) { return 0.3, true },
	}
}

func resolver(t testing.TB, s instancetype.Settings) *instancetype.Resolver {
	t.Helper()
	r, err := instancetype.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func info(t testing.TB, name string) ec2types.InstanceTypeInfo {
	t.Helper()
	c, err := offline.Load()
	if err != nil {
		t.Fatal(err)
	}
	typ, ok := c.Type(name)
	if !ok {
		t.Fatalf("the offline catalog has no %s", name)
	}
	return instancetype.FromOffline(typ)
}

// resolved is a type resolved for a class under the settings. Its expressions must not fail.
func resolved(
	t testing.TB,
	s instancetype.Settings,
	info ec2types.InstanceTypeInfo,
	c instancetype.Class,
	m instancetype.Market,
) *catalog.InstanceType {
	t.Helper()
	session, err := resolver(t, s).ForClass(c, m)
	if err != nil {
		t.Fatal(err)
	}
	it, err := session.Resolve(info)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func resolve(t testing.TB, name string, c instancetype.Class) *catalog.InstanceType {
	t.Helper()
	return resolved(t, settings, info(t, name), c, market())
}

// overhead is the part of a resource that pods do not get.
func overhead(it *catalog.InstanceType, name corev1.ResourceName) resource.Quantity {
	q := it.Capacity[name]
	q.Sub(it.Allocatable[name])
	return q
}

func expect(t *testing.T, what string, got resource.Quantity, want string) {
	t.Helper()
	if got.Cmp(resource.MustParse(want)) != 0 {
		t.Errorf("%s is %s, want %s", what, got.String(), want)
	}
}

func pods(it *catalog.InstanceType) int64 { return it.Capacity.Pods().Value() }

func maxPods(n int) func(*instancetype.Class) {
	return func(c *instancetype.Class) { v := intstr.FromInt(n); c.Kubelet.MaxPods = &v }
}

func podsPerCore(n int32) func(*instancetype.Class) {
	return func(c *instancetype.Class) { c.Kubelet.PodsPerCore = &n }
}

func efaOnly(cards ...int32) func(*instancetype.Class) {
	return func(c *instancetype.Class) {
		c.NetworkInterfaces = []awsv1.NetworkInterface{{InterfaceType: awsv1.InterfaceTypeInterface}}
		for _, card := range cards {
			c.NetworkInterfaces = append(c.NetworkInterfaces,
				awsv1.NetworkInterface{NetworkCardIndex: card, DeviceIndex: 1, InterfaceType: awsv1.InterfaceTypeEFAOnly})
		}
	}
}

func TestPodsAndMemoryReservedForThem(t *testing.T) {
	const al2, al2023, bottlerocket, windows, custom = awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023,
		awsv1.AMIFamilyBottlerocket, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyCustom
	text := intstr.FromString("10")
	for _, test := range []struct {
		name, instanceType string
		class              instancetype.Class
		reservedENIs       int
		pods               int64
		memory             string // withheld from pods: kubeReserved and the eviction threshold of 100Mi
	}{
		{"from the network", "t3.large", class(al2023), 0, 35, "740Mi"},
		{"from the network, larger", "m5.xlarge", class(al2023), 0, 58, "993Mi"},
		{"maxPods does not lower what AL2 reserves", "t3.large", class(al2, maxPods(10)), 0, 10, "740Mi"},
		{"maxPods does not lower what AL2023 reserves", "t3.large", class(al2023, maxPods(10)), 0, 10, "740Mi"},
		{"maxPods does not lower what Custom reserves", "t3.large", class(custom, maxPods(10)), 0, 10, "740Mi"},
		{"maxPods lowers what Bottlerocket reserves", "t3.large", class(bottlerocket, maxPods(10)), 0, 10, "465Mi"},
		{"maxPods lowers what Windows reserves", "t3.large", class(windows, maxPods(10)), 0, 10, "465Mi"},
		{"maxPods raises what Bottlerocket reserves", "m5.xlarge", class(bottlerocket, maxPods(110)), 0, 110, "1565Mi"},
		{"a reserved interface, AL2023", "t3.large", class(al2023), 1, 24, "740Mi"},
		{"a reserved interface, AL2", "t3.large", class(al2), 1, 24, "740Mi"},
		{"a reserved interface, Custom", "t3.large", class(custom), 1, 24, "740Mi"},
		{"a reserved interface, Bottlerocket", "t3.large", class(bottlerocket), 1, 24, "619Mi"},
		{"a reserved interface, Windows", "t3.large", class(windows), 1, 110, "1565Mi"},
		{"more reserved interfaces than there are", "t3.large", class(al2023), 1_000_000, 0, "740Mi"},
		{"podsPerCore", "t3.large", class(al2023, podsPerCore(4)), 0, 8, "740Mi"},
		{"podsPerCore below maxPods", "t3.large", class(al2023, maxPods(20), podsPerCore(4)), 0, 8, "740Mi"},
		{"podsPerCore above maxPods", "t3.large", class(al2023, maxPods(6), podsPerCore(4)), 0, 6, "740Mi"},
		{"podsPerCore of zero", "t3.large", class(al2023, podsPerCore(0)), 0, 35, "740Mi"},
		{"podsPerCore on Bottlerocket", "t3.large", class(bottlerocket, podsPerCore(4)), 0, 35, "740Mi"},
		{"podsPerCore on Windows", "t3.large", class(windows, podsPerCore(4)), 0, 8, "443Mi"},
		{"many interfaces", "m6idn.32xlarge", class(al2023), 0, 394, "4689Mi"},
		{"an EFA interface takes the place of one", "m6idn.32xlarge", class(al2023, efaOnly(0)), 0, 345, "4150Mi"},
		{"an EFA interface on another card does not", "m6idn.32xlarge", class(al2023, efaOnly(1)), 0, 394, "4689Mi"},
		{
			"an expression counts as none while the gate is off", "t3.large",
			class(al2023, func(c *instancetype.Class) { c.Kubelet.MaxPods = &text }), 0, 35, "740Mi",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := settings
			s.ReservedENIs = test.reservedENIs
			it := resolved(t, s, info(t, test.instanceType), test.class, market())
			if pods(it) != test.pods {
				t.Errorf("%d pods, want %d", pods(it), test.pods)
			}
			expect(t, "overhead", overhead(it, corev1.ResourceMemory), test.memory)
		})
	}
}

func TestOverhead(t *testing.T) {
	for _, test := range []struct {
		name                 string
		kubelet              awsv1.KubeletConfiguration
		cpu, memory, storage string // of m5.xlarge: 4 vCPUs, 15155 MiB, 20Gi
	}{
		{"by default", awsv1.KubeletConfiguration{}, "80m", "993Mi", "3Gi"},
		{
			"kubeReserved replaces key by key",
			awsv1.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "200m", "ephemeral-storage": "2Gi"}},
			"200m", "993Mi", "4Gi",
		},
		{
			"systemReserved is added",
			awsv1.KubeletConfiguration{SystemReserved: map[string]string{"cpu": "100m", "memory": "7Mi", "pid": "1000"}},
			"180m", "1000Mi", "3Gi",
		},
		{
			"expressions and negatives are left out",
			awsv1.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "vcpus * 10"}, SystemReserved: map[string]string{"memory": "-1Gi"}},
			"80m", "993Mi", "3Gi",
		},
		{
			"evictionHard as quantities",
			awsv1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "107Mi", "nodefs.available": "1Gi"}},
			"80m", "1000Mi", "2Gi",
		},
		{
			"evictionHard as percentages, rounded up", // 10 % of 15155 MiB is 1515.5 MiB
			awsv1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "10%", "nodefs.available": "20%"}},
			"80m", "2466304Ki", "5Gi", // 893 MiB + 1515.5 MiB
		},
		{
			"100 % is off",
			awsv1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "100%", "nodefs.available": "100%"}},
			"80m", "893Mi", "1Gi",
		},
		{
			"evictionSoft does not count",
			awsv1.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "10Gi"}},
			"80m", "993Mi", "3Gi",
		},
		{
			"other signals do not count",
			awsv1.KubeletConfiguration{EvictionHard: map[string]string{"pid.available": "10%", "imagefs.available": "50%"}},
			"80m", "993Mi", "3Gi",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			it := resolve(t, "m5.xlarge", class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) { c.Kubelet = test.kubelet }))
			expect(t, "memory", it.Capacity[corev1.ResourceMemory], "15155Mi")
			expect(t, "cpu overhead", overhead(it, corev1.ResourceCPU), test.cpu)
			expect(t, "memory overhead", overhead(it, corev1.ResourceMemory), test.memory)
			expect(t, "storage overhead", overhead(it, corev1.ResourceEphemeralStorage), test.storage)
		})
	}
}

func TestOverheadNeverExceedsCapacity(t *testing.T) {
	it := resolve(t, "t3.nano", class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) {
		c.Kubelet.SystemReserved = map[string]string{"cpu": "64", "memory": "1Ti"}
	}))
	expect(t, "cpu", it.Allocatable[corev1.ResourceCPU], "0")
	expect(t, "memory", it.Allocatable[corev1.ResourceMemory], "0")
}

func TestCPUReservation(t *testing.T) {
	for name, want := range map[string]string{
		"m7g.medium":     "60m",  // 1 vCPU
		"m5.large":       "70m",  // 2
		"m5.xlarge":      "80m",  // 4
		"m5.2xlarge":     "90m",  // 8
		"m5.metal":       "310m", // 96
		"m7i.metal-48xl": "550m", // 192
	} {
		expect(t, name, overhead(resolve(t, name, class(awsv1.AMIFamilyAL2023)), corev1.ResourceCPU), want)
	}
}

func TestMemory(t *testing.T) {
	expect(t, "m5.large", resolve(t, "m5.large", class(awsv1.AMIFamilyAL2023)).Capacity[corev1.ResourceMemory], "7577Mi")
	// Arm keeps 64 MiB more: (8192 - 64) - 610.
	expect(t, "m7g.large", resolve(t, "m7g.large", class(awsv1.AMIFamilyAL2023)).Capacity[corev1.ResourceMemory], "7518Mi")

	// Discovered memory is used once a node has reported it; percentages still refer to the estimate.
	seen := market()
	seen.DiscoveredMemory = func(name string) (resource.Quantity, bool) { return resource.MustParse("15700Mi"), name == "m5.xlarge" }
	c := class(awsv1.AMIFamilyAL2023, func(c *instancetype.Class) {
		c.Kubelet.EvictionHard = map[string]string{"memory.available": "10%"}
	})
	it := resolved(t, settings, info(t, "m5.xlarge"), c, seen)
	expect(t, "seen", it.Capacity[corev1.ResourceMemory], "15700Mi")
	expect(t, "overhead", overhead(it, corev1.ResourceMemory), "2466304Ki")
	it = resolved(t, settings, info(t, "m5.large"), c, seen)
	expect(t, "not seen", it.Capacity[corev1.ResourceMemory], "7577Mi")
}

func disk(device, size string, root bool) awsv1.BlockDeviceMapping {
	d := awsv1.BlockDeviceMapping{DeviceName: device, RootVolume: root, EBS: &awsv1.BlockDevice{}}
	if size != "" {
		q := resource.MustParse(size)
		d.EBS.VolumeSize = &q
	}
	return d
}

func TestEphemeralStorage(t *testing.T) {
	for _, test := range []struct {
		name, instanceType, family string
		raid                       bool
		disks                      []awsv1.BlockDeviceMapping
		want                       string
	}{
		{"family's default", "m5.large", awsv1.AMIFamilyAL2023, false, nil, "20Gi"},
		{"Windows' default", "m5.large", awsv1.AMIFamilyWindows2025, false, nil, "50Gi"},
		{"Custom without disks", "m5.large", awsv1.AMIFamilyCustom, false, nil, "20Gi"},
		{"RAID0 over the instance store", "m5d.2xlarge", awsv1.AMIFamilyAL2023, true, nil, "300G"},
		{"an instance store without RAID0", "m5d.2xlarge", awsv1.AMIFamilyAL2023, false, nil, "20Gi"},
		{"RAID0 without an instance store", "m5.large", awsv1.AMIFamilyAL2023, true, []awsv1.BlockDeviceMapping{disk("/dev/xvda", "40Gi",
			false)}, "40Gi"},
		{"root device", "m5.large", awsv1.AMIFamilyAL2, false, []awsv1.BlockDeviceMapping{disk("/dev/xvda", "30G", false)}, "30G"},
		{"root device without a size", "m5.large", awsv1.AMIFamilyAL2, false, []awsv1.BlockDeviceMapping{disk("/dev/xvda", "", false)}, "20Gi"},
		{"another device", "m5.large", awsv1.AMIFamilyAL2, false, []awsv1.BlockDeviceMapping{disk("/dev/xvdz", "90Gi", false)}, "20Gi"},
		{"rootVolume on another device", "m5.large", awsv1.AMIFamilyAL2, false, []awsv1.BlockDeviceMapping{
			disk("/dev/xvda", "30Gi", false),
			disk("/dev/xvdz", "90Gi", true),
		}, "90Gi"},
		{"Bottlerocket's root is not its data", "m5.large", awsv1.AMIFamilyBottlerocket, false, []awsv1.BlockDeviceMapping{disk("/dev/xvda",
			"90Gi", false)}, "20Gi"},
		{
			"Bottlerocket's data", "m5.large", awsv1.AMIFamilyBottlerocket, false,
			[]awsv1.BlockDeviceMapping{disk("/dev/xvdb", "90Gi", false)},
			"90Gi",
		},
		{"Custom takes the last", "m5.large", awsv1.AMIFamilyCustom, false, []awsv1.BlockDeviceMapping{
			disk("/dev/sda", "30Gi", false),
			disk("/dev/sdb", "90Gi", false),
		}, "90Gi"},
		{"Custom, the last without a size", "m5.large", awsv1.AMIFamilyCustom, false, []awsv1.BlockDeviceMapping{disk("/dev/sda", "30Gi",
			false), disk("/dev/sdb", "", false)}, "20Gi"},
		{"no EBS at all", "m5.large", awsv1.AMIFamilyAL2023, false, []awsv1.BlockDeviceMapping{{DeviceName: "/dev/xvda"}}, "20Gi"},
	} {
		t.Run(test.name, func(t *testing.T) {
			it := resolve(t, test.instanceType, class(test.family, func(c *instancetype.Class) {
				c.BlockDevices = test.disks
				if test.raid {
					c.InstanceStorePolicy = awsv1.InstanceStoreRAID0
				}
			}))
			expect(t, "ephemeral-storage", it.Capacity[corev1.ResourceEphemeralStorage], test.want)
		})
	}
}

func TestGaudiHasItsOwnResource(t *testing.T) {
	i := info(t, "p4d.24xlarge")
	i.GpuInfo.Gpus[0].Manufacturer = aws.String("Habana")
	it := resolved(t, settings, i, class(awsv1.AMIFamilyAL2023), market())
	if n := it.Capacity[awsv1.ResourceHabanaGaudi]; n.Value() != 8 {
		t.Errorf("%s of Gaudi, want 8", n.String())
	}
	if _, gpu := it.Capacity[awsv1.ResourceNVIDIAGPU]; gpu {
		t.Error("Gaudi counts as a GPU of NVIDIA")
	}
}

func TestNewNodesAttachAsManyVolumesAsEC2Reports(t *testing.T) {
	for name, want := range map[string]ec2types.EbsInfo{
		"m6i.2xlarge": {MaximumEbsAttachments: aws.Int32(27), AttachmentLimitType: ec2types.AttachmentLimitTypeShared},
		"m8i.large":   {MaximumEbsAttachments: aws.Int32(32), AttachmentLimitType: ec2types.AttachmentLimitTypeDedicated},
	} {
		got := info(t, name).EbsInfo
		if aws.ToInt32(got.MaximumEbsAttachments) != *want.MaximumEbsAttachments || got.AttachmentLimitType != want.AttachmentLimitType {
			t.Errorf("%s: %d volumes (%s)", name, aws.ToInt32(got.MaximumEbsAttachments), got.AttachmentLimitType)
		}
	}
}

func TestExtendedResources(t *testing.T) {
	for _, test := range []struct {
		name  string
		class instancetype.Class
		want  map[corev1.ResourceName]int64
	}{
		{"t3.large", class(awsv1.AMIFamilyAL2023), nil},
		{"m5.xlarge", class(awsv1.AMIFamilyAL2023), map[corev1.ResourceName]int64{awsv1.ResourcePodENI: 18}},
		{"m5.xlarge", class(awsv1.AMIFamilyWindows2022), map[corev1.ResourceName]int64{awsv1.ResourcePodENI: 18, awsv1.ResourcePrivateIPv4: 14}},
		{"m6g.xlarge", class(awsv1.AMIFamilyWindows2022), map[corev1.ResourceName]int64{awsv1.ResourcePodENI: 18}},
		{"g5.12xlarge", class(awsv1.AMIFamilyAL2023), map[corev1.ResourceName]int64{
			awsv1.ResourcePodENI: 107, awsv1.ResourceNVIDIAGPU: 4,
			awsv1.ResourceEFA: 1,
		}},
		{"g4ad.16xlarge", class(awsv1.AMIFamilyAL2023), map[corev1.ResourceName]int64{awsv1.ResourcePodENI: 6, awsv1.ResourceAMDGPU: 4}},
		{"inf2.48xlarge", class(awsv1.AMIFamilyAL2023), map[corev1.ResourceName]int64{
			awsv1.ResourcePodENI: 107, awsv1.ResourceNeuron: 12,
			awsv1.ResourceNeuronCore: 24,
		}},
		{"trn1.32xlarge", class(awsv1.AMIFamilyAL2023), map[corev1.ResourceName]int64{
			awsv1.ResourcePodENI: 82, awsv1.ResourceNeuron: 16,
			awsv1.ResourceNeuronCore: 32, awsv1.ResourceEFA: 8,
		}},
		{"p4d.24xlarge", class(awsv1.AMIFamilyAL2023, efaOnly(0, 1)), map[corev1.ResourceName]int64{
			awsv1.ResourcePodENI:    62,
			awsv1.ResourceNVIDIAGPU: 8, awsv1.ResourceEFA: 2,
		}},
		{"p4d.24xlarge", class(awsv1.AMIFamilyAL2023, efaOnly()), map[corev1.ResourceName]int64{
			awsv1.ResourcePodENI:    62,
			awsv1.ResourceNVIDIAGPU: 8,
		}},
	} {
		t.Run(test.name+" "+test.class.Family.Name, func(t *testing.T) {
			var got map[corev1.ResourceName]int64
			for name, q := range resolve(t, test.name, test.class).Capacity {
				switch name {
				case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
				default:
					if got == nil {
						got = map[corev1.ResourceName]int64{}
					}
					got[name] = q.Value()
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The system volume has the size that Karpenter 1.15 gives it; images have grown.
func TestBottlerocketsSystemVolume(t *testing.T) {
	devices := instancetype.FamilyOf(awsv1.AMIFamilyBottlerocket).BlockDevices
	if len(devices) != 2 || devices[0].EBS.VolumeSize.String() != "6Gi" || devices[1].EBS.VolumeSize.String() != "20Gi" {
		t.Errorf("devices %+v", devices)
	}
}

func TestClassOf(t *testing.T) {
	nodeClass := &awsv1.EC2NodeClass{
		Spec: awsv1.EC2NodeClassSpec{
			Kubelet: &runtime.RawExtension{
				Raw: []byte(`{"maxPods": 12, "evictionHard": {"memory.available": "5%"}, "anything": 1}`),
			},
			BlockDeviceMappings: []awsv1.BlockDeviceMapping{disk("/dev/xvda", "30Gi", false)},
			InstanceStorePolicy: awsv1.InstanceStoreRAID0,
			ConnectionTracking:  &awsv1.ConnectionTracking{UDPTimeout: aws.Int32(30)},
			CPUOptions:          &awsv1.CPUOptions{NestedVirtualization: "enabled"},
			EnclaveOptions:      &awsv1.EnclaveOptions{Enabled: true},
		},
		Status: awsv1.EC2NodeClassStatus{Subnets: []awsv1.Subnet{{ID: "subnet-1", Zone: "us-east-1a"}}},
	}
	got, err := instancetype.ClassOf(nodeClass, awsv1.AMIFamilyBottlerocket)
	if err != nil {
		t.Fatal(err)
	}
	n := intstr.FromInt(12)
	want := instancetype.Class{
		Family:               instancetype.FamilyOf(awsv1.AMIFamilyBottlerocket),
		Kubelet:              awsv1.KubeletConfiguration{MaxPods: &n, EvictionHard: map[string]string{"memory.available": "5%"}},
		BlockDevices:         nodeClass.Spec.BlockDeviceMappings,
		InstanceStorePolicy:  awsv1.InstanceStoreRAID0,
		ConnectionTracking:   true,
		NestedVirtualization: true,
		Enclaves:             true,
		Subnets:              nodeClass.Status.Subnets,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	nodeClass.Spec.Kubelet.Raw = []byte(`{"podsPerCore": "many"}`)
	if _, err := instancetype.ClassOf(nodeClass, awsv1.AMIFamilyAL2023); err == nil {
		t.Error("a kubelet configuration that cannot be read is no error")
	}
}
