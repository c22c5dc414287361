package instancetype

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// FromOffline returns what DescribeInstanceTypes returns for a type, as far as the offline catalog contains it.
func FromOffline(t offline.Type) ec2types.InstanceTypeInfo {
	info := ec2types.InstanceTypeInfo{
		InstanceType:                  ec2types.InstanceType(t.Name),
		BareMetal:                     &t.BareMetal,
		BurstablePerformanceSupported: &t.Burstable,
		CurrentGeneration:             &t.CurrentGeneration,
		Hypervisor:                    ec2types.InstanceTypeHypervisor(t.Hypervisor),
		InstanceStorageSupported:      aws.Bool(t.Disks.Count > 0),
		InstanceStorageInfo:           instanceStore(t.Disks),
		MemoryInfo:                    &ec2types.MemoryInfo{SizeInMiB: &t.MemoryMiB},
		NetworkInfo:                   network(t),
		NitroEnclavesSupport:          ec2types.NitroEnclavesSupportUnsupported,
		ProcessorInfo:                 processor(t),
		SupportedVirtualizationTypes:  convertStrings[ec2types.VirtualizationType](t.Virtualization),
		SupportedUsageClasses:         convertStrings[ec2types.UsageClassType](t.UsageClasses),
		PlacementGroupInfo: &ec2types.PlacementGroupInfo{
			SupportedStrategies: convertStrings[ec2types.PlacementGroupStrategy](t.Placement),
		},
		GpuInfo:                  gpuInfo(t.GPUs),
		NeuronInfo:               neuronInfo(t.Neuron),
		InferenceAcceleratorInfo: inferenceInfo(t.InferenceAccelerators),
		EbsInfo: &ec2types.EbsInfo{
			EbsOptimizedSupport:   ec2types.EbsOptimizedSupport(t.EBSOptimized),
			AttachmentLimitType:   ec2types.AttachmentLimitType(t.EBSAttachmentLimit),
			MaximumEbsAttachments: count(t.EBSAttachments),
		},
		VCpuInfo: &ec2types.VCpuInfo{
			DefaultVCpus: count(t.VCPUs), DefaultCores: count(t.Cores), DefaultThreadsPerCore: count(t.VCPUs / t.Cores),
		},
	}
	if t.NitroEnclaves {
		info.NitroEnclavesSupport = ec2types.NitroEnclavesSupportSupported
	}
	if t.EBSMaxMbps > 0 {
		info.EbsInfo.EbsOptimizedInfo = &ec2types.EbsOptimizedInfo{MaximumBandwidthInMbps: count(t.EBSMaxMbps)}
	}
	return info
}

// convertStrings converts strings to the SDK's type.
func convertStrings[T ~string](words []string) []T {
	out := make([]T, len(words))
	for i, w := range words {
		out[i] = T(w)
	}
	return out
}

func count(n int) *int32 { return aws.Int32(int32(n)) }

func processor(t offline.Type) *ec2types.ProcessorInfo {
	p := &ec2types.ProcessorInfo{
		SupportedArchitectures: convertStrings[ec2types.ArchitectureType](t.Architectures),
		SupportedFeatures:      convertStrings[ec2types.SupportedAdditionalProcessorFeature](t.Features),
	}
	if t.Manufacturer != "" {
		p.Manufacturer = &t.Manufacturer
	}
	if t.ClockGHz > 0 {
		p.SustainedClockSpeedInGhz = &t.ClockGHz
	}
	return p
}

func network(t offline.Type) *ec2types.NetworkInfo {
	n := &ec2types.NetworkInfo{
		NetworkPerformance:           &t.NetworkPerformance,
		DefaultNetworkCardIndex:      count(t.DefaultCard),
		MaximumNetworkCards:          count(len(t.NetworkCards)),
		Ipv4AddressesPerInterface:    count(t.IPv4PerENI),
		Ipv6AddressesPerInterface:    count(t.IPv6PerENI),
		Ipv6Supported:                aws.Bool(t.IPv6PerENI > 0),
		EnaSupport:                   ec2types.EnaSupport(t.ENASupport),
		EfaSupported:                 aws.Bool(t.EFAMax > 0),
		EncryptionInTransitSupported: &t.EncryptionInTransit,
	}
	if t.EFAMax > 0 {
		n.EfaInfo = &ec2types.EfaInfo{MaximumEfaInterfaces: count(t.EFAMax)}
	}
	total := 0
	for _, c := range t.NetworkCards {
		total += c.MaxENIs
		n.NetworkCards = append(n.NetworkCards, ec2types.NetworkCardInfo{
			NetworkCardIndex: count(c.Index), MaximumNetworkInterfaces: count(c.MaxENIs),
		})
	}
	n.MaximumNetworkInterfaces = count(total)
	return n
}

func instanceStore(d offline.Disks) *ec2types.InstanceStorageInfo {
	if d.Count == 0 {
		return nil
	}
	return &ec2types.InstanceStorageInfo{
		TotalSizeInGB: &d.TotalGB,
		NvmeSupport:   ec2types.EphemeralNvmeSupport(d.NVMe),
		Disks:         []ec2types.DiskInfo{{Count: count(int(d.Count)), SizeInGB: &d.SizeGB, Type: ec2types.DiskType(d.Kind)}},
	}
}

func gpuInfo(gpus []offline.GPU) *ec2types.GpuInfo {
	if len(gpus) == 0 {
		return nil
	}
	info, total := &ec2types.GpuInfo{}, 0
	for _, g := range gpus {
		total += max(1, g.Count) * int(g.MemoryMiB) // of a part of a GPU, its own
		info.Gpus = append(info.Gpus, ec2types.GpuDeviceInfo{
			Name: &g.Name, Manufacturer: &g.Manufacturer, Count: count(g.Count), LogicalGpuCount: count(g.Logical),
			MemoryInfo: &ec2types.GpuDeviceMemoryInfo{SizeInMiB: count(int(g.MemoryMiB))},
		})
	}
	info.TotalGpuMemoryInMiB = count(total)
	return info
}

func neuronInfo(devices []offline.Accelerator) *ec2types.NeuronInfo {
	if len(devices) == 0 {
		return nil
	}
	info, total := &ec2types.NeuronInfo{}, 0
	for _, d := range devices {
		total += d.Count * int(d.MemoryMiB)
		info.NeuronDevices = append(info.NeuronDevices, ec2types.NeuronDeviceInfo{
			Name: &d.Name, Count: count(d.Count),
			CoreInfo:   &ec2types.NeuronDeviceCoreInfo{Count: count(d.CoresPerDevice)},
			MemoryInfo: &ec2types.NeuronDeviceMemoryInfo{SizeInMiB: count(int(d.MemoryMiB))},
		})
	}
	info.TotalNeuronDeviceMemoryInMiB = count(total)
	return info
}

func inferenceInfo(devices []offline.Accelerator) *ec2types.InferenceAcceleratorInfo {
	if len(devices) == 0 {
		return nil
	}
	info := &ec2types.InferenceAcceleratorInfo{}
	for _, d := range devices {
		info.Accelerators = append(info.Accelerators, ec2types.InferenceDeviceInfo{
			Name: &d.Name, Manufacturer: &d.Manufacturer, Count: count(d.Count),
			MemoryInfo: &ec2types.InferenceDeviceMemoryInfo{SizeInMiB: count(int(d.MemoryMiB))},
		})
	}
	return info
}
