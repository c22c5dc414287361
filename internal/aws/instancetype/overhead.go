package instancetype

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signals of the kubelet's evictionHard.
const (
	memoryAvailable = "memory.available"
	diskAvailable   = "nodefs.available"
)

// The kubelet's default eviction thresholds.
const (
	evictionMemoryMiB   = 100
	evictionDiskPercent = 10
)

// overhead returns what the kubelet withholds from pods: kubeReserved, systemReserved, and the eviction threshold.
// computed is the estimate of memory; percentages refer to it even if the discovered memory is known.
func (m typeForClass) overhead(capacity corev1.ResourceList, computed resource.Quantity) []corev1.ResourceList {
	return []corev1.ResourceList{
		m.kubeReserved(capacity),
		quantities(m.class.Kubelet.SystemReserved),
		m.evictionThreshold(computed, capacity[corev1.ResourceEphemeralStorage]),
	}
}

func (m typeForClass) kubeReserved(capacity corev1.ResourceList) corev1.ResourceList {
	podCapacity := capacity[corev1.ResourcePods]
	pods := podCapacity.Value()
	if m.class.Family.ENILimitedMemory {
		pods = int64(m.podsOfENIs(0 /* reserved */))
	}
	reserved := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewMilliQuantity(reservedMilliCPU(m.vcpus()*1000), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity((11*pods+255)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: gibibytes(1),
	}
	for name, q := range quantities(m.class.Kubelet.KubeReserved) {
		reserved[name] = q
	}
	return reserved
}

// reservedMilliCPU reserves less of each further CPU: 6 % of the first, 1 % of the second, half a percent of the next
// two and a quarter of a percent of the rest.
func reservedMilliCPU(milli int64) int64 {
	total := int64(0)
	for _, band := range []struct {
		start, end, perTenThousand int64
	}{
		{0, 1000, 600},
		{1000, 2000, 100},
		{2000, 4000, 50},
		{4000, math.MaxInt64, 25},
	} {
		if milli >= band.start {
			total += (min(milli, band.end) - band.start) * band.perTenThousand / 10_000
		}
	}
	return total
}

// quantities parses reserved resources. It skips invalid and negative quantities.
func quantities(texts map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range texts {
		if q, err := resource.ParseQuantity(text); err == nil && q.Sign() >= 0 {
			list[corev1.ResourceName(name)] = q
		}
	}
	return list
}

func (m typeForClass) evictionThreshold(memory, disk resource.Quantity) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceMemory:           *resource.NewQuantity(evictionMemoryMiB<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(share(disk, evictionDiskPercent), resource.BinarySI),
	}
	for signal, of := range map[string]struct {
		resource corev1.ResourceName
		capacity resource.Quantity
	}{
		memoryAvailable: {corev1.ResourceMemory, memory},
		diskAvailable:   {corev1.ResourceEphemeralStorage, disk},
	} {
		if threshold, ok := signalValue(m.class.Kubelet.EvictionHard[signal], of.capacity); ok {
			list[of.resource] = threshold
		}
	}
	return list
}

// signalValue parses a quantity or a percentage of capacity; false if text is neither. For the kubelet 100 % turns the
// signal off.
func signalValue(text string, capacity resource.Quantity) (resource.Quantity, bool) {
	percentage, isPercentage := strings.CutSuffix(text, "%")
	if !isPercentage {
		q, err := resource.ParseQuantity(text)
		return q, err == nil
	}
	percent, err := strconv.ParseFloat(percentage, 64)
	if err != nil || math.IsNaN(percent) {
		return resource.Quantity{}, false
	}
	if percent == 100 {
		percent = 0
	}
	return *resource.NewQuantity(share(capacity, percent), resource.BinarySI), true
}

// share returns percent of q, rounded up.
func share(q resource.Quantity, percent float64) int64 {
	return int64(math.Ceil(float64(q.Value()) * percent / 100))
}
