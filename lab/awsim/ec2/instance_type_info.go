package ec2

import (
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// typeInfo is an instance type as DescribeInstanceTypes shows it.
type typeInfo struct {
	Name            string           `xml:"instanceType"`
	Current         bool             `xml:"currentGeneration"`
	FreeTier        bool             `xml:"freeTierEligible"`
	UsageClasses    []string         `xml:"supportedUsageClasses>item"`
	RootDevices     []string         `xml:"supportedRootDeviceTypes>item"`
	Virtualization  []string         `xml:"supportedVirtualizationTypes>item"`
	BareMetal       bool             `xml:"bareMetal"`
	Hypervisor      string           `xml:"hypervisor,omitempty"`
	Processor       processorInfo    `xml:"processorInfo"`
	VCPU            vcpuInfo         `xml:"vCpuInfo"`
	Memory          mib              `xml:"memoryInfo"`
	StorageSupport  bool             `xml:"instanceStorageSupported"`
	Storage         *storageInfo     `xml:"instanceStorageInfo"`
	EBS             ebsInfo          `xml:"ebsInfo"`
	Network         networkInfo      `xml:"networkInfo"`
	GPU             *gpuInfo         `xml:"gpuInfo"`
	FPGA            *fpgaInfo        `xml:"fpgaInfo"`
	Inference       *inferenceInfo   `xml:"inferenceAcceleratorInfo"`
	Neuron          *neuronInfo      `xml:"neuronInfo"`
	PlacementGroups placementSupport `xml:"placementGroupInfo"`
	Hibernation     bool             `xml:"hibernationSupported"`
	Burstable       bool             `xml:"burstablePerformanceSupported"`
	DedicatedHosts  bool             `xml:"dedicatedHostsSupported"`
	AutoRecovery    bool             `xml:"autoRecoverySupported"`
	BootModes       []string         `xml:"supportedBootModes>item"`
	NitroEnclaves   string           `xml:"nitroEnclavesSupport"`
	NitroTPM        string           `xml:"nitroTpmSupport"`
}

type mib struct {
	Size int64 `xml:"sizeInMiB"`
}

type processorInfo struct {
	Architectures []string `xml:"supportedArchitectures>item"`
	Clock         float64  `xml:"sustainedClockSpeedInGhz,omitempty"`
	Manufacturer  string   `xml:"manufacturer,omitempty"`
	Features      []string `xml:"supportedFeatures>item"`
}

type vcpuInfo struct {
	VCPUs   int `xml:"defaultVCpus"`
	Cores   int `xml:"defaultCores"`
	Threads int `xml:"defaultThreadsPerCore"`
}

type storageInfo struct {
	Total      int64         `xml:"totalSizeInGB"`
	Disks      []storageDisk `xml:"disks>item"`
	NVMe       string        `xml:"nvmeSupport,omitempty"`
	Encryption string        `xml:"encryptionSupport"`
}

type storageDisk struct {
	Size  int64  `xml:"sizeInGB"`
	Count int64  `xml:"count"`
	Kind  string `xml:"type"`
}

type ebsInfo struct {
	Optimized  string        `xml:"ebsOptimizedSupport"`
	Encryption string        `xml:"encryptionSupport"`
	Bandwidth  *ebsBandwidth `xml:"ebsOptimizedInfo"`
	NVMe       string        `xml:"nvmeSupport"`
	// AttachmentLimit states whether other devices take from MaxAttachments.
	AttachmentLimit string `xml:"attachmentLimitType"`
	MaxAttachments  int    `xml:"maximumEbsAttachments"`
}

type ebsBandwidth struct {
	Maximum int `xml:"maximumBandwidthInMbps"`
}

type networkInfo struct {
	Performance   string        `xml:"networkPerformance"`
	MaxInterfaces int           `xml:"maximumNetworkInterfaces"`
	MaxCards      int           `xml:"maximumNetworkCards"`
	DefaultCard   int           `xml:"defaultNetworkCardIndex"`
	Cards         []networkCard `xml:"networkCards>item"`
	IPv4          int           `xml:"ipv4AddressesPerInterface"`
	IPv6          int           `xml:"ipv6AddressesPerInterface"`
	IPv6Supported bool          `xml:"ipv6Supported"`
	ENA           string        `xml:"enaSupport"`
	EFASupported  bool          `xml:"efaSupported"`
	EFA           *efaInfo      `xml:"efaInfo"`
	Encryption    bool          `xml:"encryptionInTransitSupported"`
}

type networkCard struct {
	Index         int    `xml:"networkCardIndex"`
	Performance   string `xml:"networkPerformance"`
	MaxInterfaces int    `xml:"maximumNetworkInterfaces"`
}

type efaInfo struct {
	Maximum int `xml:"maximumEfaInterfaces"`
}

type gpuInfo struct {
	GPUs  []device `xml:"gpus>item"`
	Total int64    `xml:"totalGpuMemoryInMiB"`
}

type fpgaInfo struct {
	FPGAs []device `xml:"fpgas>item"`
	Total int64    `xml:"totalFpgaMemoryInMiB"`
}

type inferenceInfo struct {
	Accelerators []device `xml:"accelerators>member"`
	Total        int64    `xml:"totalInferenceMemoryInMiB"`
}

type neuronInfo struct {
	Devices []neuronDevice `xml:"neuronDevices>item"`
	Total   int64          `xml:"totalNeuronDeviceMemoryInMiB"`
}

type device struct {
	Name         string `xml:"name"`
	Manufacturer string `xml:"manufacturer"`
	Count        int    `xml:"count"`
	Logical      int    `xml:"logicalGpuCount,omitempty"` // of GPUs
	Memory       *mib   `xml:"memoryInfo"`
}

type neuronDevice struct {
	Count  int    `xml:"count"`
	Name   string `xml:"name"`
	Cores  int    `xml:"coreInfo>count"`
	Memory *mib   `xml:"memoryInfo"`
}

type placementSupport struct {
	Strategies []string `xml:"supportedStrategies>item"`
}

// infoOf works out what the catalog implies: what EC2 states of all types of a hypervisor or generation alike.
func infoOf(m *instanceType) *typeInfo {
	nitro := m.Hypervisor == "nitro" || m.BareMetal
	i := &typeInfo{
		Name: m.Name, Current: m.CurrentGeneration, FreeTier: m.Name == "t2.micro" || m.Name == "t3.micro",
		UsageClasses: m.UsageClasses, RootDevices: []string{"ebs"}, Virtualization: m.Type.Virtualization,
		BareMetal: m.BareMetal, Hypervisor: m.Hypervisor, Burstable: m.Burstable,
		Processor: processorInfo{
			Architectures: m.Architectures,
			Clock:         m.ClockGHz,
			Manufacturer:  m.Manufacturer,
			Features:      processorFeatures(m),
		},
		VCPU:           vcpuInfo{VCPUs: m.VCPUs, Cores: m.Cores, Threads: threadsPerCore(m.Type)},
		Memory:         mib{m.MemoryMiB},
		StorageSupport: m.Disks.Count > 0,
		Storage:        storageOf(m.Disks),
		EBS: ebsInfo{
			Optimized: m.EBSOptimized, Encryption: "supported", NVMe: pick(nitro, "required", "unsupported"),
			AttachmentLimit: m.EBSAttachmentLimit, MaxAttachments: m.EBSAttachments,
		},
		Network:         networkOf(m.Type),
		PlacementGroups: placementSupport{Strategies: m.Placement},
		Hibernation:     !m.BareMetal && !strings.HasPrefix(m.Name, "t1.") && m.MemoryMiB < 150*1024,
		DedicatedHosts:  !m.Burstable || strings.HasPrefix(m.Name, "t3."),
		AutoRecovery:    !m.BareMetal && m.Disks.Count == 0,
		BootModes:       bootModes(m),
		NitroEnclaves:   pick(m.NitroEnclaves, "supported", "unsupported"),
		NitroTPM:        pick(nitro && !m.BareMetal, "supported", "unsupported"),
	}
	if m.EBSMaxMbps > 0 {
		i.EBS.Bandwidth = &ebsBandwidth{Maximum: m.EBSMaxMbps}
	}
	i.addAccelerators(m.Type)
	return i
}

func (i *typeInfo) addAccelerators(t offline.Type) {
	if len(t.GPUs) > 0 {
		i.GPU = &gpuInfo{}
		for _, g := range t.GPUs {
			i.GPU.GPUs = append(
				i.GPU.GPUs,
				device{Name: g.Name, Manufacturer: g.Manufacturer, Count: g.Count, Logical: g.Logical, Memory: &mib{g.MemoryMiB}},
			)
			i.GPU.Total += int64(max(1, g.Count)) * g.MemoryMiB // of a part of a GPU, its own
		}
	}
	if devices, total := devicesOf(t.FPGAs); devices != nil {
		i.FPGA = &fpgaInfo{FPGAs: devices, Total: total}
	}
	if devices, total := devicesOf(t.InferenceAccelerators); devices != nil {
		i.Inference = &inferenceInfo{Accelerators: devices, Total: total}
	}
	if len(t.Neuron) > 0 {
		i.Neuron = &neuronInfo{}
		for _, n := range t.Neuron {
			i.Neuron.Devices = append(
				i.Neuron.Devices,
				neuronDevice{Name: n.Name, Count: n.Count, Cores: n.CoresPerDevice, Memory: &mib{n.MemoryMiB}},
			)
			i.Neuron.Total += int64(n.Count) * n.MemoryMiB
		}
	}
}

func devicesOf(list []offline.Accelerator) (devices []device, total int64) {
	for _, a := range list {
		devices = append(devices, device{Name: a.Name, Manufacturer: a.Manufacturer, Count: a.Count, Memory: &mib{a.MemoryMiB}})
		total += int64(a.Count) * a.MemoryMiB
	}
	return devices, total
}

func storageOf(d offline.Disks) *storageInfo {
	if d.Count == 0 {
		return nil
	}
	return &storageInfo{
		Total: d.TotalGB, Disks: []storageDisk{{Size: d.SizeGB, Count: d.Count, Kind: d.Kind}}, NVMe: d.NVMe,
		Encryption: pick(d.NVMe == "required", "required", "unsupported"),
	}
}

func networkOf(t offline.Type) networkInfo {
	n := networkInfo{
		Performance: t.NetworkPerformance, MaxInterfaces: interfaceLimit(t), MaxCards: len(t.NetworkCards), DefaultCard: t.DefaultCard,
		IPv4: t.IPv4PerENI, IPv6: t.IPv6PerENI, IPv6Supported: t.IPv6PerENI > 0, ENA: t.ENASupport,
		EFASupported: t.EFAMax > 0, Encryption: t.EncryptionInTransit,
	}
	for _, card := range t.NetworkCards {
		n.Cards = append(n.Cards, networkCard{Index: card.Index, Performance: t.NetworkPerformance, MaxInterfaces: card.MaxENIs})
	}
	if t.EFAMax > 0 {
		n.EFA = &efaInfo{Maximum: t.EFAMax}
	}
	return n
}

func bootModes(m *instanceType) []string {
	if slices.Contains(m.Architectures, "arm64") {
		return []string{"uefi"}
	}
	if m.Hypervisor == "nitro" {
		return []string{"legacy-bios", "uefi"}
	}
	return []string{"legacy-bios"}
}

func pick(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}
