package instancetype

import (
	"math"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// armReservedMiB states what the firmware of Arm instances keeps in addition to the hypervisor's share.
const armReservedMiB = 64

// defaultDiskGiB is assumed if neither the node class nor the family has a size for the disk.
const defaultDiskGiB = 20

// resources returns the capacity of a node of the type, and its allocatable resources.
func (r *Resolver) resources(m typeForClass, market Market) (capacity, allocatable corev1.ResourceList) {
	computed := m.computedMemory()
	capacity = r.capacity(m, computed)
	if market.DiscoveredMemory != nil {
		if seen, ok := market.DiscoveredMemory(m.name); ok {
			capacity[corev1.ResourceMemory] = seen
		}
	}
	return capacity, catalog.Allocatable(capacity, m.overhead(capacity, computed)...)
}

// capacity returns the resources of the type; extended resources that it lacks are left out.
func (r *Resolver) capacity(m typeForClass, memory resource.Quantity) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(m.vcpus(), resource.DecimalSI),
		corev1.ResourceMemory:           memory,
		corev1.ResourceEphemeralStorage: m.ephemeralStorage(),
		corev1.ResourcePods:             *resource.NewQuantity(int64(m.pods()), resource.DecimalSI),
	}
	branch, _ := r.branch.lookup(m.name)
	extended := map[corev1.ResourceName]int64{
		awsv1.ResourcePodENI:      branch,
		awsv1.ResourceNVIDIAGPU:   m.gpus("NVIDIA"),
		awsv1.ResourceAMDGPU:      m.gpus("AMD"),
		awsv1.ResourceHabanaGaudi: m.gpus("Habana"),
		awsv1.ResourceNeuron:      m.neuronDevices(),
		awsv1.ResourceNeuronCore:  m.neuronCores(),
		awsv1.ResourceEFA:         m.efaInterfaces(),
		awsv1.ResourcePrivateIPv4: r.windowsAddresses(m),
	}
	for name, n := range extended {
		if n > 0 {
			list[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return list
}

// computedMemory estimates the memory that the operating system sees.
func (m typeForClass) computedMemory() resource.Quantity {
	mib := m.memoryMiB()
	if p := m.ProcessorInfo; p != nil && len(p.SupportedArchitectures) > 0 && p.SupportedArchitectures[0] == ec2types.ArchitectureTypeArm64 {
		mib -= armReservedMiB
	}
	mib -= int64(math.Ceil(float64(mib) * m.settings.MemoryOverhead))
	return *resource.NewQuantity(mib<<20, resource.BinarySI)
}

// localStorage is the size of the instance's own disks, in bytes, unless one volume is made of them for kubelet.
func (m typeForClass) localStorage() int64 {
	s := m.InstanceStorageInfo
	if s == nil || s.TotalSizeInGB == nil || m.class.InstanceStorePolicy == awsv1.InstanceStoreRAID0 {
		return 0
	}
	return *s.TotalSizeInGB * 1e9
}

// ephemeralStorage returns the size of the disk with the kubelet's directory.
func (m typeForClass) ephemeralStorage() resource.Quantity {
	if s := m.InstanceStorageInfo; m.class.InstanceStorePolicy == awsv1.InstanceStoreRAID0 && s != nil && s.TotalSizeInGB != nil {
		return *resource.NewScaledQuantity(*s.TotalSizeInGB, resource.Giga)
	}
	disks, family := m.class.BlockDevices, m.class.Family
	for _, d := range disks {
		if size, ok := volumeSize(d); ok && d.RootVolume {
			return size
		}
	}
	if family.EphemeralDevice == "" && len(disks) > 0 { // only the AMI knows; the last one is the best guess
		if size, ok := volumeSize(disks[len(disks)-1]); ok {
			return size
		}
		return gibibytes(defaultDiskGiB)
	}
	for _, list := range [][]awsv1.BlockDeviceMapping{disks, family.BlockDevices} {
		for _, d := range list {
			if size, ok := volumeSize(d); ok && d.DeviceName == family.EphemeralDevice {
				return size
			}
		}
	}
	return gibibytes(defaultDiskGiB)
}

func volumeSize(d awsv1.BlockDeviceMapping) (resource.Quantity, bool) {
	if d.EBS == nil || d.EBS.VolumeSize == nil {
		return resource.Quantity{}, false
	}
	return d.EBS.VolumeSize.DeepCopy(), true
}

// pods returns how many pods the kubelet accepts. A maxPods that is an expression counts as not set here.
func (m typeForClass) pods() int {
	kubelet, n := m.class.Kubelet, podsWithoutENI
	switch {
	case kubelet.MaxPods != nil && kubelet.MaxPods.Type == intstr.Int:
		n = int(kubelet.MaxPods.IntVal)
	case m.class.Family.ENILimitedPods:
		n = m.podsOfENIs(m.settings.ReservedENIs)
	}
	if perCore := aws.ToInt32(kubelet.PodsPerCore); perCore > 0 && m.class.Family.PodsPerCore {
		n = min(n, int(perCore)*int(m.vcpus()))
	}
	return n
}

// podsOfENIs returns how many pods can have their own address: the first address of each interface is the node's, and
// two pods use the host network.
func (m typeForClass) podsOfENIs(reserved int) int {
	if m.NetworkInfo == nil {
		return 0
	}
	card, _ := m.networkCard(aws.ToInt32(m.NetworkInfo.DefaultNetworkCardIndex))
	enis := int(aws.ToInt32(card.MaximumNetworkInterfaces)) - reserved - m.countEFAOnly(0)
	if enis <= 0 {
		return 0
	}
	return enis*(int(aws.ToInt32(m.NetworkInfo.Ipv4AddressesPerInterface))-1) + 2
}

func (m typeForClass) gpus(manufacturer string) int64 {
	n := int64(0)
	if m.GpuInfo != nil {
		for _, g := range m.GpuInfo.Gpus {
			if aws.ToString(g.Manufacturer) == manufacturer {
				n += gpuCount(g)
			}
		}
	}
	return n
}

// gpuCount returns how many GPUs a node shows. EC2 counts whole GPUs: for a part of one, as in g6f, the count is 0 and
// the logical count is set.
func gpuCount(g ec2types.GpuDeviceInfo) int64 {
	if whole := aws.ToInt32(g.Count); whole > 0 {
		return int64(whole)
	}
	return int64(aws.ToInt32(g.LogicalGpuCount))
}

func (m typeForClass) neuronDevices() int64 {
	n := int64(0)
	if m.NeuronInfo != nil {
		for _, d := range m.NeuronInfo.NeuronDevices {
			n += int64(aws.ToInt32(d.Count))
		}
	}
	return n
}

func (m typeForClass) neuronCores() int64 {
	if m.NeuronInfo == nil || len(m.NeuronInfo.NeuronDevices) == 0 || m.NeuronInfo.NeuronDevices[0].CoreInfo == nil {
		return 0
	}
	d := m.NeuronInfo.NeuronDevices[0]
	return int64(aws.ToInt32(d.Count)) * int64(aws.ToInt32(d.CoreInfo.Count))
}

func (m typeForClass) efaInterfaces() int64 {
	if len(m.class.NetworkInterfaces) > 0 {
		return int64(m.countEFAOnly(-1 /* all cards */))
	}
	return m.efaMaximum()
}

func (m typeForClass) efaMaximum() int64 {
	if m.NetworkInfo == nil || m.NetworkInfo.EfaInfo == nil {
		return 0
	}
	return int64(aws.ToInt32(m.NetworkInfo.EfaInfo.MaximumEfaInterfaces))
}

// windowsAddresses returns how many pods of a Windows node can have an address: those of one interface, on the types
// that the VPC resource controller supports.
func (r *Resolver) windowsAddresses(m typeForClass) int64 {
	if _, known := r.branch.lookup(m.name); !known || m.class.Family.OS != corev1.Windows || len(m.os()) == 0 || m.NetworkInfo == nil {
		return 0
	}
	return int64(aws.ToInt32(m.NetworkInfo.Ipv4AddressesPerInterface)) - 1
}
