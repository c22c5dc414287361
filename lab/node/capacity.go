package node

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/dovetail-k8s/dovetail/lab/node/userdata"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30
)

// capacity is the instance's capacity, as kubelet measures it.
func (m host) capacity(cluster userdata.Config, settings kubeletconfig.KubeletConfiguration) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(m.instance.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(m.visibleMemory(), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(settings.MaxPods), resource.DecimalSI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.storage(cluster), resource.BinarySI),
		"hugepages-1Gi":                 *resource.NewQuantity(0, resource.DecimalSI),
		"hugepages-2Mi":                 *resource.NewQuantity(0, resource.DecimalSI),
	}
}

// visibleMemory is the memory that Linux reports, in bytes. Firmware and kernel keep some of what EC2
// advertises: about 20 MiB and 3 %, and 64 MiB more for the contiguous allocator on arm64. An m5.large
// (8192 MiB) reports some 7920 MiB.
func (m host) visibleMemory() int64 {
	total := m.instance.MemoryMiB
	if m.instance.Architecture == "arm64" {
		total -= 64
	}
	visible := total - 20 - (total*3+99)/100
	return max(visible, 0) * mebi
}

// storage is the size of the file system that pods write to, in bytes: the instance store if the user
// data makes one file system of it, otherwise the root volume, less what the file system itself takes.
func (m host) storage(cluster userdata.Config) int64 {
	if cluster.LocalDisks != "" && m.instance.LocalDiskGB > 0 {
		return m.instance.LocalDiskGB * 1_000_000_000
	}
	size := int64(m.instance.RootDiskGiB)
	if m.image.Family == userdata.Bottlerocket {
		size = 20 // pods write to the second volume
	}
	const overheadKi = 12_308 // of XFS on 20 GiB
	return max(size, 1)*gibi - overheadKi<<10
}

// devices are the resources that the device plugin of the image's drivers reports.
func (m host) devices() corev1.ResourceList {
	names := map[string]corev1.ResourceName{"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
	out := corev1.ResourceList{}
	if m.simulator != nil && m.simulator.withoutPlugins() {
		return out
	}
	for _, gpu := range m.instance.GPUs {
		name, known := names[gpu.Manufacturer]
		if !known {
			continue
		}
		count := out[name]
		count.Add(*resource.NewQuantity(int64(gpu.Count), resource.DecimalSI))
		out[name] = count
	}
	return out
}

// allocatable is what is left of a capacity for pods: less what the settings reserve, and less what
// must stay free lest pods be evicted.
func allocatable(capacity corev1.ResourceList, settings kubeletconfig.KubeletConfiguration) corev1.ResourceList {
	signals := map[corev1.ResourceName]string{
		corev1.ResourceMemory: "memory.available", corev1.ResourceEphemeralStorage: "nodefs.available",
	}
	out := corev1.ResourceList{}
	for name, total := range capacity {
		left := total.DeepCopy()
		for _, reserved := range []map[string]string{settings.KubeReserved, settings.SystemReserved} {
			if q, err := resource.ParseQuantity(reserved[string(name)]); err == nil {
				left.Sub(q)
			}
		}
		if threshold, ok := settings.EvictionHard[signals[name]]; ok {
			if q, err := userdata.Threshold(threshold, total); err == nil {
				left.Sub(q)
			}
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, left.Format)
		}
		out[name] = left
	}
	return out
}
