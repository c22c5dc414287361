package instancetype

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// requirements returns the labels of the type's nodes. Each key is present; a label that nodes will not have is
// DoesNotExist, so that no pod with the label matches.
func (r *Resolver) requirements(m typeForClass, zones []string) requirement.Set {
	family, size, _ := strings.Cut(m.name, ".")
	reqs := []requirement.Requirement{
		requirement.In(corev1.LabelInstanceTypeStable, m.name),
		requirement.In(corev1.LabelTopologyRegion, r.settings.Region),
		requirement.In(corev1.LabelTopologyZone, zones...),
		requirement.In(corev1.LabelArchStable, m.arch()),
		requirement.In(corev1.LabelOSStable, m.os()...),
		requirement.In(karpv1.LabelCapacityType, m.allCapacityTypes()...),
		optional(corev1.LabelWindowsBuild, m.class.Family.WindowsBuild),
		requirement.In(awsv1.LabelInstanceTenancy, awsv1.TenancyDefault, awsv1.TenancyDedicated),
		requirement.In(awsv1.LabelInstanceCPU, number(m.vcpus())),
		requirement.In(awsv1.LabelInstanceMemory, number(m.memoryMiB())),
		requirement.In(awsv1.LabelInstanceFamily, family),
		requirement.In(awsv1.LabelInstanceSize, size),
		requirement.In(awsv1.LabelInstanceCapabilityFlex, strconv.FormatBool(strings.Contains(family, "-flex"))),
		requirement.In(awsv1.LabelInstanceHypervisor, string(m.Hypervisor)),
		requirement.In(awsv1.LabelInstanceEncryptionInTransit, strconv.FormatBool(m.encryptsInTransit())),
		optional(awsv1.LabelInstanceLocalNVMe, m.localNVMe()),
		optional(awsv1.LabelInstanceEBSBandwidth, m.ebsBandwidth()),
		optional(awsv1.LabelInstanceNetworkBandwidth, r.networkBandwidth(m.name)),
	}
	reqs = append(reqs, m.absentReservationLabels()...)
	reqs = append(reqs, m.placementGroupLabels()...)
	reqs = append(reqs, m.nameLabels()...)
	reqs = append(reqs, m.processorLabels()...)
	reqs = append(reqs, m.gpuLabels()...)
	reqs = append(reqs, m.acceleratorLabels()...)
	if ids := m.zoneIDs(zones); len(ids) > 0 {
		reqs = append(reqs, requirement.In(awsv1.LabelZoneID, ids...))
	}
	return requirement.NewSet(reqs...)
}

// optional requires the value, or the label's absence for an empty value.
func optional(key, value string) requirement.Requirement {
	if value == "" {
		return requirement.DoesNotExist(key)
	}
	return requirement.In(key, value)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// kebab makes a label value from EC2's name of a device: "Radeon Pro V520" becomes radeon-pro-v520.
func kebab(s *string) string {
	return strings.ToLower(strings.ReplaceAll(aws.ToString(s), " ", "-"))
}

// architecture returns the first architecture of a type that Kubernetes has a name for; "" if none has.
func architecture(info ec2types.InstanceTypeInfo) string {
	if info.ProcessorInfo == nil {
		return ""
	}
	for _, a := range info.ProcessorInfo.SupportedArchitectures {
		switch a {
		case ec2types.ArchitectureTypeX8664:
			return "amd64"
		case ec2types.ArchitectureTypeArm64:
			return "arm64"
		}
	}
	return ""
}

// arch falls back to EC2's list as text, which no node can match.
func (m typeForClass) arch() string {
	if a := architecture(m.InstanceTypeInfo); a != "" {
		return a
	}
	var list []ec2types.ArchitectureType
	if m.ProcessorInfo != nil {
		list = m.ProcessorInfo.SupportedArchitectures
	}
	return fmt.Sprint(list)
}

// os is empty if the family's operating system does not run on the processor: then nothing can match.
func (m typeForClass) os() []string {
	if m.class.Family.OS == corev1.Windows && m.arch() != "amd64" {
		return nil
	}
	return []string{string(m.class.Family.OS)}
}

func (m typeForClass) capacityTypes() []string {
	var types []string
	for _, t := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot} {
		if slices.Contains(m.SupportedUsageClasses, ec2types.UsageClassType(t)) { // EC2 uses the same words
			types = append(types, t)
		}
	}
	return types
}

// allCapacityTypes adds reserved if the class has a reservation of the type.
func (m typeForClass) allCapacityTypes() []string {
	types := m.capacityTypes()
	if len(m.reservationsOfType()) > 0 {
		types = append(types, karpv1.CapacityTypeReserved)
	}
	return types
}

func (m typeForClass) zoneIDs(zones []string) []string {
	var ids []string
	for _, zone := range zones {
		if id := m.zoneID(zone); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// placementGroupLabels returns the labels of the placement group and its partitions.
func (m typeForClass) placementGroupLabels() []requirement.Requirement {
	group := m.class.Group
	labels := []requirement.Requirement{
		optional(awsv1.LabelPlacementGroupID, group.ID),
		requirement.DoesNotExist(awsv1.LabelPlacementGroupPartition),
	}
	if group.Strategy == placement.Partition {
		labels[1] = requirement.In(awsv1.LabelPlacementGroupPartition, m.class.partitions()...)
	}
	return labels
}

func (m typeForClass) memoryMiB() int64 {
	if m.MemoryInfo == nil {
		return 0
	}
	return aws.ToInt64(m.MemoryInfo.SizeInMiB)
}

func (m typeForClass) nameLabels() []requirement.Requirement {
	category, generation := categoryAndGeneration(m.name)
	return []requirement.Requirement{
		optional(awsv1.LabelInstanceCategory, category),
		optional(awsv1.LabelInstanceGeneration, generation),
	}
}

// categoryAndGeneration parses a type's name: letters, an optional size like -6tb, and a number. m5.large is m and 5,
// u-6tb1.metal is u and 1; both are "" for a name of another form, such as mac-m4.metal.
func categoryAndGeneration(name string) (category, generation string) {
	const letters, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"
	rest := strings.TrimLeft(name, letters)
	category = name[:len(name)-len(rest)]
	if after, ok := strings.CutPrefix(rest, "-"); ok {
		if after, ok = strings.CutPrefix(strings.TrimLeft(after, digits), "tb"); ok {
			rest = after
		}
	}
	generation = rest[:len(rest)-len(strings.TrimLeft(rest, digits))]
	if category == "" || generation == "" {
		return "", ""
	}
	return category, generation
}

func (m typeForClass) processorLabels() []requirement.Requirement {
	manufacturer, mhz := "", ""
	if p := m.ProcessorInfo; p != nil {
		manufacturer = kebab(p.Manufacturer)
		if p.SustainedClockSpeedInGhz != nil {
			mhz = number(int64(math.Round(*p.SustainedClockSpeedInGhz * 1000)))
		}
	}
	return []requirement.Requirement{
		optional(awsv1.LabelInstanceCPUManufacturer, manufacturer),
		optional(awsv1.LabelInstanceCPUClockSpeed, mhz),
	}
}

func (m typeForClass) encryptsInTransit() bool {
	return m.NetworkInfo != nil && aws.ToBool(m.NetworkInfo.EncryptionInTransitSupported)
}

func (m typeForClass) localNVMe() string {
	s := m.InstanceStorageInfo
	if s == nil || s.TotalSizeInGB == nil || s.NvmeSupport == ec2types.EphemeralNvmeSupportUnsupported {
		return ""
	}
	return number(*s.TotalSizeInGB)
}

func (m typeForClass) ebsBandwidth() string {
	e := m.EbsInfo
	if e == nil || e.EbsOptimizedSupport != ec2types.EbsOptimizedSupportDefault ||
		e.EbsOptimizedInfo == nil || e.EbsOptimizedInfo.MaximumBandwidthInMbps == nil {
		return ""
	}
	return number(int64(*e.EbsOptimizedInfo.MaximumBandwidthInMbps))
}

func (r *Resolver) networkBandwidth(name string) string {
	mbps, ok := r.bandwidth.lookup(name)
	if !ok {
		return ""
	}
	return number(mbps)
}

// gpuLabels describe types with one kind of GPU. One set of labels cannot describe two kinds.
func (m typeForClass) gpuLabels() []requirement.Requirement {
	name, manufacturer, count, memory := "", "", "", ""
	if m.GpuInfo != nil && len(m.GpuInfo.Gpus) == 1 {
		gpu := m.GpuInfo.Gpus[0]
		name, manufacturer, count = kebab(gpu.Name), kebab(gpu.Manufacturer), number(gpuCount(gpu))
		if gpu.MemoryInfo != nil {
			memory = number(int64(aws.ToInt32(gpu.MemoryInfo.SizeInMiB)))
		}
	}
	return []requirement.Requirement{
		optional(awsv1.LabelInstanceGPUName, name),
		optional(awsv1.LabelInstanceGPUManufacturer, manufacturer),
		optional(awsv1.LabelInstanceGPUCount, count),
		optional(awsv1.LabelInstanceGPUMemory, memory),
	}
}

// acceleratorLabels describe types with one kind of Neuron device or, if EC2 lists none, one kind of inference
// accelerator.
func (m typeForClass) acceleratorLabels() []requirement.Requirement {
	name, manufacturer, count := "", "", ""
	switch {
	case m.NeuronInfo != nil:
		if len(m.NeuronInfo.NeuronDevices) == 1 {
			d := m.NeuronInfo.NeuronDevices[0]
			name, manufacturer, count = kebab(d.Name), "aws", number(int64(aws.ToInt32(d.Count)))
		}
	case m.InferenceAcceleratorInfo != nil && len(m.InferenceAcceleratorInfo.Accelerators) == 1:
		a := m.InferenceAcceleratorInfo.Accelerators[0]
		name, manufacturer, count = kebab(a.Name), kebab(a.Manufacturer), number(int64(aws.ToInt32(a.Count)))
	}
	return []requirement.Requirement{
		optional(awsv1.LabelInstanceAcceleratorName, name),
		optional(awsv1.LabelInstanceAcceleratorManuf, manufacturer),
		optional(awsv1.LabelInstanceAcceleratorCount, count),
	}
}
