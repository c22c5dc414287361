package instancetype_test

import (
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

// This file computes, from the documentation and the raw data of a type, the capacity and allocatable resources of a
// node. It shares no table, formula or data path with the code under test.

// familyTraits describes what the documentation states of an AMI family.
type familyTraits struct {
	eniMemory, perCore, eniPods, windows bool
	device                               string // of the kubelet's directory
	deviceGiB                            int64
}

var traitsByFamily = map[string]familyTraits{
	"AL2":          {eniMemory: true, perCore: true, eniPods: true, device: "/dev/xvda", deviceGiB: 20},
	"AL2023":       {eniMemory: true, perCore: true, eniPods: true, device: "/dev/xvda", deviceGiB: 20},
	"Bottlerocket": {eniPods: true, device: "/dev/xvdb", deviceGiB: 20},
	"Custom":       {eniMemory: true, perCore: true, eniPods: true, deviceGiB: 20},
	"Windows2019":  {perCore: true, windows: true, device: "/dev/sda1", deviceGiB: 50},
	"Windows2022":  {perCore: true, windows: true, device: "/dev/sda1", deviceGiB: 50},
	"Windows2025":  {perCore: true, windows: true, device: "/dev/sda1", deviceGiB: 50},
}

// classCase is the settings of a node class, in plain numbers; zero is not set.
type classCase struct {
	name                         string
	maxPods, perCore             int64
	reservedENIs                 int64
	raid0                        bool
	xvdaGiB                      int64 // a single block device
	evictMemory, evictDisk       float64
	evictMemoryMi                int64
	kubeMemoryMi, systemMilliCPU int64
	efaOnly                      int64 // interfaces on card 0, beside a plain one
}

var classCases = []classCase{
	{name: "nothing"},
	{name: "maxPods", maxPods: 10},
	{name: "maxPods and podsPerCore", maxPods: 110, perCore: 4},
	{name: "podsPerCore", perCore: 2},
	{name: "a reserved interface", reservedENIs: 1},
	{name: "all interfaces reserved", reservedENIs: 1000},
	{name: "RAID0 and a disk", raid0: true, xvdaGiB: 100},
	{name: "eviction by share", evictMemory: 7.5, evictDisk: 15},
	{name: "eviction by quantity, reservations", evictMemoryMi: 777, kubeMemoryMi: 1234, systemMilliCPU: 321},
	{name: "an EFA interface", efaOnly: 1},
}

func (w classCase) class(family string) instancetype.Class {
	return class(family, func(c *instancetype.Class) {
		if w.maxPods > 0 {
			n := intstr.FromInt32(int32(w.maxPods))
			c.Kubelet.MaxPods = &n
		}
		if w.perCore > 0 {
			n := int32(w.perCore)
			c.Kubelet.PodsPerCore = &n
		}
		if w.raid0 {
			c.InstanceStorePolicy = awsv1.InstanceStoreRAID0
		}
		if w.xvdaGiB > 0 {
			size := resource.MustParse(strconv.FormatInt(w.xvdaGiB, 10) + "Gi")
			c.BlockDevices = []awsv1.BlockDeviceMapping{{DeviceName: "/dev/xvda", EBS: &awsv1.BlockDevice{VolumeSize: &size}}}
		}
		c.Kubelet.EvictionHard = map[string]string{}
		if w.evictMemory > 0 {
			c.Kubelet.EvictionHard["memory.available"] = strconv.FormatFloat(w.evictMemory, 'f', -1, 64) + "%"
			c.Kubelet.EvictionHard["nodefs.available"] = strconv.FormatFloat(w.evictDisk, 'f', -1, 64) + "%"
		}
		if w.evictMemoryMi > 0 {
			c.Kubelet.EvictionHard["memory.available"] = strconv.FormatInt(w.evictMemoryMi, 10) + "Mi"
			c.Kubelet.KubeReserved = map[string]string{"memory": strconv.FormatInt(w.kubeMemoryMi, 10) + "Mi"}
			c.Kubelet.SystemReserved = map[string]string{"cpu": strconv.FormatInt(w.systemMilliCPU, 10) + "m"}
		}
		if w.efaOnly > 0 {
			c.NetworkInterfaces = []awsv1.NetworkInterface{
				{InterfaceType: awsv1.InterfaceTypeInterface}, {DeviceIndex: 1, InterfaceType: awsv1.InterfaceTypeEFAOnly},
			}
		}
	})
}

// resourceCounts is capacity or allocatable resources: milli-CPUs, bytes, and numbers.
type resourceCounts map[string]int64

func (n resourceCounts) count(name string, of int64) {
	if of > 0 {
		n[name] = of
	}
}

// documentedResources returns the capacity of a node of the type, and its allocatable resources.
func documentedResources(typ *offline.Type, family string, w classCase, branches documentedTable) (has, left resourceCounts) {
	f := traitsByFamily[family]
	eniPods := func(reserved int64) int64 {
		enis := int64(0)
		for _, card := range typ.NetworkCards {
			if card.Index == typ.DefaultCard {
				enis = int64(card.MaxENIs)
			}
		}
		enis -= reserved + w.efaOnly
		if enis <= 0 {
			return 0
		}
		return enis*(int64(typ.IPv4PerENI)-1) + 2
	}

	pods := int64(110)
	if f.eniPods {
		pods = eniPods(w.reservedENIs)
	}
	if w.maxPods > 0 {
		pods = w.maxPods
	}
	if f.perCore && w.perCore > 0 {
		pods = min(pods, w.perCore*int64(typ.VCPUs))
	}

	mib := typ.MemoryMiB
	if typ.Architectures[0] == "arm64" {
		mib -= 64
	}
	mib -= int64(math.Ceil(0.075 * float64(mib)))

	disk := f.deviceGiB << 30
	if w.xvdaGiB > 0 && (f.device == "/dev/xvda" || f.device == "") {
		disk = w.xvdaGiB << 30
	}
	if w.raid0 && typ.Disks.Count > 0 {
		disk = typ.Disks.TotalGB * 1e9
	}

	has = resourceCounts{"cpu": int64(typ.VCPUs) * 1000, "memory": mib << 20, "ephemeral-storage": disk, "pods": pods}
	branch, known := branches.number(typ.Name)
	has.count("vpc.amazonaws.com/pod-eni", branch)
	for _, gpu := range typ.GPUs {
		has.count(
			map[string]string{"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}[gpu.Manufacturer],
			int64(max(gpu.Count, gpu.Logical)),
		)
	}
	for i, device := range typ.Neuron {
		has.count("aws.amazon.com/neuron", has["aws.amazon.com/neuron"]+int64(device.Count))
		if i == 0 {
			has.count("aws.amazon.com/neuroncore", int64(device.Count*device.CoresPerDevice))
		}
	}
	efa := int64(typ.EFAMax)
	if w.efaOnly > 0 {
		efa = w.efaOnly
	}
	has.count("vpc.amazonaws.com/efa", efa)
	if f.windows && slices.Contains(typ.Architectures, "x86_64") && known {
		has.count("vpc.amazonaws.com/PrivateIPv4Address", int64(typ.IPv4PerENI)-1)
	}

	reservedCPU := int64(60) // of the first CPU
	switch n := int64(typ.VCPUs); {
	case n >= 4:
		reservedCPU += 10 + 10 + (n-4)*5/2
	case n > 1:
		reservedCPU += 10 + (n-2)*5
	}
	reservedPods := pods
	if f.eniMemory {
		reservedPods = eniPods(0)
	}
	reservedMemory, evictedMemory := (11*reservedPods+255)<<20, int64(100<<20)
	if w.evictMemory > 0 {
		evictedMemory = int64(math.Ceil(float64(mib<<20) * w.evictMemory / 100))
	}
	if w.evictMemoryMi > 0 {
		evictedMemory, reservedMemory = w.evictMemoryMi<<20, w.kubeMemoryMi<<20
	}
	evictedDisk := 10.0
	if w.evictDisk > 0 {
		evictedDisk = w.evictDisk
	}
	left = maps.Clone(has)
	left["cpu"] = max(0, has["cpu"]-reservedCPU-w.systemMilliCPU)
	left["memory"] = max(0, has["memory"]-reservedMemory-evictedMemory)
	left["ephemeral-storage"] = max(0, disk-1<<30-int64(math.Ceil(float64(disk)*evictedDisk/100)))
	return has, left
}

func countsOf(list corev1.ResourceList) resourceCounts {
	n := resourceCounts{}
	for name, q := range list {
		if n[string(name)] = q.Value(); name == corev1.ResourceCPU {
			n[string(name)] = q.MilliValue()
		}
	}
	return n
}

// documentedTable is a table as in the documentation.
type documentedTable struct {
	sizes    map[string]int64
	families map[string]map[string]int64
}

var deviation = regexp.MustCompile(`([^\s=]+)=(\d+)`)

func readTable(t *testing.T, path string) documentedTable {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := documentedTable{families: map[string]map[string]int64{}}
	numbers := func(text string) map[string]int64 {
		m := map[string]int64{}
		for _, found := range deviation.FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseInt(found[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range strings.Split(found[1], "/") {
				m[regexp.MustCompile(`x$`).ReplaceAllString(size, "xlarge")] = n
			}
		}
		return m
	}
	for _, line := range strings.Split(string(text), "\n") {
		if sizes, ok := strings.CutPrefix(line, "sizes:"); ok {
			out.sizes = numbers(sizes)
		}
		if names, deviations, ok := strings.Cut(line, " — "); ok {
			for _, name := range strings.Fields(names) {
				out.families[name] = numbers(strings.ReplaceAll(deviations, ",", " "))
			}
		}
	}
	return out
}

// number returns the table's number for a type; false if it has none.
func (p documentedTable) number(name string) (int64, bool) {
	family, size, _ := strings.Cut(name, ".")
	if _, listed := p.families[family]; !listed {
		return 0, false
	}
	if n, ok := p.families[family][size]; ok {
		return n, true
	}
	n, ok := p.sizes[size]
	return n, ok
}

// Capacity, overhead and pods of every type, for every family, match the documentation.
func TestEveryTypeMatchesTheDocumentation(t *testing.T) {
	types, infos := supported(t)
	branches, bandwidth := readTable(t, "testdata/branch.txt"), readTable(t, "testdata/bandwidth.txt")
	if len(branches.families) < 150 || len(bandwidth.families) < 150 || len(branches.sizes) < 20 {
		t.Fatalf(
			"%d and %d families, %d sizes: the tables are not read",
			len(branches.families),
			len(bandwidth.families),
			len(branches.sizes),
		)
	}
	compared := 0
	for _, w := range classCases {
		t.Run(w.name, func(t *testing.T) {
			s := settings
			s.ReservedENIs = int(w.reservedENIs)
			r := resolver(t, s)
			for _, family := range families {
				resolved, err := r.ResolveAll(infos, w.class(family), market())
				if err != nil {
					t.Fatal(err)
				}
				for i, it := range resolved {
					has, left := documentedResources(&types[i], family, w, branches)
					if got := countsOf(it.Capacity); !maps.Equal(got, has) {
						t.Errorf("%s with %s has %v, want %v", it.Name, family, got, has)
					}
					if got := countsOf(it.Allocatable); !maps.Equal(got, left) {
						t.Errorf("%s with %s leaves %v, want %v", it.Name, family, got, left)
					}
					checkFigures(t, it, &types[i], bandwidth)
					compared++
				}
			}
		})
	}
	if compared != len(types)*len(families)*len(classCases) {
		t.Errorf("%d types compared", compared)
	}
}

// checkFigures compares the labels with numbers, or parts of the name.
func checkFigures(t *testing.T, it *catalog.InstanceType, typ *offline.Type, bandwidth documentedTable) {
	t.Helper()
	family, size, _ := strings.Cut(typ.Name, ".")
	mbps := ""
	if n, ok := bandwidth.number(typ.Name); ok {
		mbps = strconv.FormatInt(n, 10)
	}
	for key, want := range map[string]string{
		corev1.LabelInstanceTypeStable:      typ.Name,
		awsv1.LabelInstanceCPU:              strconv.Itoa(typ.VCPUs),
		awsv1.LabelInstanceMemory:           strconv.FormatInt(typ.MemoryMiB, 10),
		awsv1.LabelInstanceFamily:           family,
		awsv1.LabelInstanceSize:             size,
		awsv1.LabelInstanceNetworkBandwidth: mbps,
	} {
		if got, _ := it.Requirements.Get(key).Single(); got != want {
			t.Errorf("%s: %s is %q, want %q", it.Name, key, got, want)
		}
	}
}
