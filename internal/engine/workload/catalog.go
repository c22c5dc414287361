package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// simulatedType is the input for an instance type.
type simulatedType struct {
	name, family, size, category, generation, arch string
	cpus, memoryMiB, pods                          int64
	zones                                          []string
	onDemand, spot                                 float64
}

// instanceType has the capacity that AWS and the kubelet leave for pods, and the labels that pools select by.
func (m simulatedType) instanceType(capacityTypes []string) *catalog.InstanceType {
	it := &catalog.InstanceType{Name: m.name, Capacity: corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(m.cpus, resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(m.memoryMiB*925/1000<<20, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(m.pods, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(20<<30, resource.BinarySI),
	}}
	reservedCPU := 60 + 10*min(m.cpus-1, 1) + 5*max(0, min(m.cpus-2, 2)) + 5*max(0, m.cpus-4)/2
	it.Allocatable = it.Capacity.DeepCopy()
	it.Allocatable[corev1.ResourceCPU] = *resource.NewMilliQuantity(m.cpus*1000-reservedCPU, resource.DecimalSI)
	memory := it.Capacity[corev1.ResourceMemory]
	it.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(max(0, memory.Value()-(11*m.pods+355)<<20), resource.BinarySI)
	it.Requirements = requirement.NewSet(
		requirement.In(corev1.LabelInstanceTypeStable, m.name),
		requirement.In(corev1.LabelArchStable, m.arch),
		requirement.In(corev1.LabelOSStable, "linux"),
		requirement.In(awsv1.LabelInstanceCategory, m.category),
		requirement.In(awsv1.LabelInstanceFamily, m.family),
		requirement.In(awsv1.LabelInstanceGeneration, m.generation),
		requirement.In(awsv1.LabelInstanceSize, m.size),
		requirement.In(awsv1.LabelInstanceCPU, strconv.FormatInt(m.cpus, 10)),
		requirement.In(awsv1.LabelInstanceMemory, strconv.FormatInt(m.memoryMiB, 10)),
	)
	var offerings []catalog.Offering
	for _, zone := range m.zones {
		if m.onDemand > 0 && slices.Contains(capacityTypes, karpv1.CapacityTypeOnDemand) {
			offerings = append(offerings, enginetest.Offering(zone, karpv1.CapacityTypeOnDemand, m.onDemand))
		}
		if m.spot > 0 && slices.Contains(capacityTypes, karpv1.CapacityTypeSpot) {
			offerings = append(offerings, enginetest.Offering(zone, karpv1.CapacityTypeSpot, m.spot))
		}
	}
	return enginetest.WithOfferings(it, offerings...)
}

// EC2Types are the instance types of a region in the offline catalog, with the given capacity types. Zones have their IDs as
// names.
func EC2Types(region string, capacityTypes ...string) ([]*catalog.InstanceType, error) {
	c, err := offline.Load(region)
	if err != nil {
		return nil, fmt.Errorf("load the offline catalog: %w", err)
	}
	var out []*catalog.InstanceType
	for _, t := range c.Types() {
		family, size, _ := strings.Cut(t.Name, ".")
		letters := strings.IndexAny(family, "0123456789")
		if letters <= 0 || len(t.NetworkCards) == 0 || len(t.GPUs) > 0 {
			continue
		}
		end := letters
		for end < len(family) && family[end] >= '0' && family[end] <= '9' {
			end++
		}
		m := simulatedType{
			name: t.Name, family: family, size: size, category: family[:letters], generation: family[letters:end],
			cpus: int64(t.VCPUs), memoryMiB: t.MemoryMiB, pods: int64(t.NetworkCards[0].MaxENIs*(t.IPv4PerENI-1) + 2),
			zones: c.ZoneIDs(region, t.Name),
		}
		switch {
		case slices.Contains(t.Architectures, "x86_64"):
			m.arch = "amd64"
		case slices.Contains(t.Architectures, "arm64"):
			m.arch = "arm64"
		}
		m.onDemand, _ = c.OnDemand(region, t.Name)
		m.spot, _ = c.Spot(region, t.Name)
		if m.arch != "" && len(m.zones) > 0 && m.onDemand+m.spot > 0 {
			if it := m.instanceType(capacityTypes); len(it.Offerings) > 0 {
				out = append(out, it)
			}
		}
	}
	return out, nil
}

// SyntheticTypes is n types with three ratios of memory to CPU, in three zones, with prices close to proportional.
func SyntheticTypes(n int, capacityTypes ...string) []*catalog.InstanceType {
	sizes := []int64{1, 2, 4, 8, 16, 32, 48, 64, 96}
	var out []*catalog.InstanceType
	for i := range n {
		category, perCore := [...]string{"c", "m", "r"}[i/len(sizes)%3], [...]int64{2, 4, 8}[i/len(sizes)%3]
		m := simulatedType{
			name: fmt.Sprintf(
				"%s%d.s%02d",
				category,
				3+i/27,
				sizes[i%len(sizes)],
			), category: category, generation: strconv.Itoa(3 + i/27), arch: [...]string{"amd64", "arm64"}[i/27%2],
			cpus: sizes[i%len(sizes)], memoryMiB: sizes[i%len(sizes)] * perCore << 10, pods: 110, zones: enginetest.Zones(),
		}
		m.family, m.size = category+m.generation, fmt.Sprintf("s%02d", m.cpus)
		m.onDemand = float64(m.cpus) * (0.030 + 0.003*float64(perCore)) * (1 + 0.004*float64(i*7%17))
		m.spot = m.onDemand * (0.3 + 0.02*float64(i*5%13))
		out = append(out, m.instanceType(capacityTypes))
	}
	return out
}

// ZonesOf are the zones in which any of the types is offered, sorted.
func ZonesOf(list []*catalog.InstanceType) []string {
	var out []string
	for _, it := range list {
		for _, o := range it.Offerings {
			out = append(out, o.Zone)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
