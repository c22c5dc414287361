package node

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/node/userdata"
)

func TestCapacityAndAllocatable(t *testing.T) {
	m5xlarge := awsim.Instance{VCPUs: 4, MemoryMiB: 16384, RootDiskGiB: 20, Architecture: "x86_64"}
	for _, tt := range []struct {
		name     string
		instance awsim.Instance
		family   userdata.Family
		disks    string
		settings kubeletconfig.KubeletConfiguration
		want     map[corev1.ResourceName]string // capacity / allocatable
	}{
		{
			"reservations are taken off", m5xlarge, userdata.AL2023, "",
			kubeletconfig.KubeletConfiguration{
				MaxPods: 58, KubeReserved: map[string]string{"cpu": "80m", "memory": "893Mi", "ephemeral-storage": "1Gi"},
				SystemReserved: map[string]string{"cpu": "20m", "memory": "7Mi"},
				EvictionHard:   map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
			},
			map[corev1.ResourceName]string{
				"cpu": "4 / 3900m", "memory": "15872Mi / 14872Mi", "pods": "58 / 58", "ephemeral-storage": "20959212Ki / 18242267956", // 90 % less 1 GiB
			},
		},
		{
			"thresholds in percent", m5xlarge, userdata.AL2, "",
			kubeletconfig.KubeletConfiguration{MaxPods: 10, EvictionHard: map[string]string{"memory.available": "50%", "nodefs.available": "100%"}},
			map[corev1.ResourceName]string{
				"cpu": "4 / 4", "memory": "15872Mi / 7936Mi", "pods": "10 / 10",
				"ephemeral-storage": "20959212Ki / 20959212Ki",
			},
		},
		{
			"more reserved than there is", m5xlarge, userdata.AL2, "",
			kubeletconfig.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "5", "memory": "20Gi"}},
			map[corev1.ResourceName]string{"cpu": "4 / 0", "memory": "15872Mi / 0", "pods": "0 / 0", "ephemeral-storage": "20959212Ki / 20959212Ki"},
		},
		{
			"arm64 keeps 64 MiB more",
			awsim.Instance{VCPUs: 2, MemoryMiB: 4096, RootDiskGiB: 20, Architecture: "arm64"},
			userdata.AL2023, "",
			kubeletconfig.KubeletConfiguration{MaxPods: 17},
			map[corev1.ResourceName]string{
				"cpu": "2 / 2", "memory": "3891Mi / 3891Mi", "pods": "17 / 17",
				"ephemeral-storage": "20959212Ki / 20959212Ki",
			},
		},
		{
			"instance store as one file system",
			awsim.Instance{VCPUs: 2, MemoryMiB: 1000, RootDiskGiB: 20, LocalDiskGB: 75},
			userdata.AL2023, "raid0",
			kubeletconfig.KubeletConfiguration{},
			map[corev1.ResourceName]string{
				"cpu": "2 / 2", "memory": "950Mi / 950Mi", "pods": "0 / 0",
				"ephemeral-storage": "75000000000 / 75000000000",
			},
		},
		{
			"Bottlerocket's second volume",
			awsim.Instance{VCPUs: 2, MemoryMiB: 1000, RootDiskGiB: 4},
			userdata.Bottlerocket, "",
			kubeletconfig.KubeletConfiguration{},
			map[corev1.ResourceName]string{
				"cpu": "2 / 2", "memory": "950Mi / 950Mi", "pods": "0 / 0",
				"ephemeral-storage": "20959212Ki / 20959212Ki",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := host{instance: tt.instance, image: userdata.Image{Family: tt.family}}
			capacity := m.capacity(userdata.Config{LocalDisks: tt.disks}, tt.settings)
			left := allocatable(capacity, tt.settings)
			got := map[corev1.ResourceName]string{}
			for name := range tt.want {
				total, free := capacity[name], left[name]
				got[name] = total.String() + " / " + free.String()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Real nodes show at least what planners assume they do, which is 92.5 % of what EC2 advertises.
func TestVisibleMemory(t *testing.T) {
	for _, mebibytes := range []int64{1024, 2048, 4096, 8192, 16384, 65536, 786432} {
		for _, arch := range []string{"x86_64", "arm64"} {
			m := host{instance: awsim.Instance{MemoryMiB: mebibytes, Architecture: arch}}
			advertised := mebibytes
			if arch == "arm64" {
				advertised -= 64
			}
			if got := m.visibleMemory() / mebi; got*1000 < advertised*925 || got >= advertised {
				t.Errorf("%d MiB %s: shows %d MiB", mebibytes, arch, got)
			}
		}
	}
}

func TestDevices(t *testing.T) {
	m := host{instance: awsim.Instance{GPUs: []ec2.GPU{{Manufacturer: "NVIDIA", Count: 4}, {Manufacturer: "Unheard", Count: 1}}}}
	gpus := m.devices()["nvidia.com/gpu"]
	if len(m.devices()) != 1 || gpus.Value() != 4 {
		t.Errorf("devices %v", m.devices())
	}
}

func TestPodRangesDoNotOverlap(t *testing.T) {
	f := &Simulator{podBlocks: map[int]bool{}}
	all := netip.MustParsePrefix("100.64.0.0/10")
	var seen []netip.Prefix
	for range 300 {
		p, _ := f.allocatePodRange()
		if !all.Overlaps(p) || p != p.Masked() {
			t.Fatalf("range %s", p)
		}
		for _, other := range seen {
			if other.Overlaps(p) {
				t.Fatalf("%s overlaps %s", p, other)
			}
		}
		seen = append(seen, p)
	}
	_, release := f.allocatePodRange()
	release()
	last, _ := f.allocatePodRange()
	if again, _ := f.allocatePodRange(); again == last {
		t.Errorf("%s was lent twice", again)
	}
}
