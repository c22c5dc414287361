package instancetype_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

var families = []string{
	awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023, awsv1.AMIFamilyBottlerocket, awsv1.AMIFamilyCustom,
	awsv1.AMIFamilyWindows2019, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyWindows2025,
}

// supported are the types of the offline catalog that the provider can use.
func supported(t testing.TB) ([]offline.Type, []ec2types.InstanceTypeInfo) {
	t.Helper()
	c, err := offline.Load()
	if err != nil {
		t.Fatal(err)
	}
	var types []offline.Type
	var infos []ec2types.InstanceTypeInfo
	for _, typ := range c.Types() {
		if i := instancetype.FromOffline(typ); instancetype.Supported(i) {
			types, infos = append(types, typ), append(infos, i)
		}
	}
	return types, infos
}

func TestMacsAreNotSupported(t *testing.T) {
	types, _ := supported(t)
	if len(types) < 900 {
		t.Errorf("only %d types are supported", len(types))
	}
	for _, typ := range types {
		if strings.HasPrefix(typ.Name, "mac") {
			t.Errorf("%s is supported", typ.Name)
		}
	}
}

// Each type of EC2 with each family keeps the promises of the catalog, and agrees with the documented
// formulas as computed here a second time, from other data.
func TestEveryTypeWithEveryFamily(t *testing.T) {
	types, infos := supported(t)
	r := resolver(t, settings)
	for _, family := range families {
		resolved, err := r.All(infos, class(family), market())
		if err != nil {
			t.Fatal(err)
		}
		if len(resolved) != len(types) || !slices.IsSortedFunc(resolved, func(a, b *catalog.InstanceType) int { return strings.Compare(a.Name, b.Name) }) {
			t.Fatalf("%s: %d of %d types, or not sorted", family, len(resolved), len(types))
		}
		for i, it := range resolved {
			checkLabels(t, it)
			checkResources(t, it)
			checkFormulas(t, it, types[i], family)
			checkOfferings(t, it, types[i])
		}
	}
}

func checkLabels(t *testing.T, it *catalog.InstanceType) {
	t.Helper()
	known := awsv1.Vocabulary().WellKnown
	for _, r := range it.Requirements.All() {
		if !known[r.Key()] {
			t.Errorf("%s: label %s is not well-known", it.Name, r.Key())
		}
		if r.Operator() != corev1.NodeSelectorOpIn && r.Operator() != corev1.NodeSelectorOpDoesNotExist {
			t.Errorf("%s: %s", it.Name, r)
		}
		for _, v := range r.Values() {
			if problems := validation.IsValidLabelValue(v); len(problems) > 0 {
				t.Errorf("%s: %s: %v", it.Name, r, problems)
			}
		}
	}
}

func checkResources(t *testing.T, it *catalog.InstanceType) {
	t.Helper()
	if len(it.Capacity) != len(it.Allocatable) {
		t.Errorf("%s: capacity of %d resources, allocatable of %d", it.Name, len(it.Capacity), len(it.Allocatable))
	}
	for name, capacity := range it.Capacity {
		allocatable, ok := it.Allocatable[name]
		if !ok || allocatable.Sign() < 0 || allocatable.Cmp(capacity) > 0 {
			t.Errorf("%s: %s of %s %s are allocatable", it.Name, allocatable.String(), capacity.String(), name)
		}
	}
}

// documented is what the formulas give, in plain numbers.
type documented struct {
	milliCPU, bytes, storage, pods int64 // allocatable, pods apart
}

func byTheBook(typ offline.Type, family string) documented {
	arm := typ.Architectures[0] == "arm64"
	mib := float64(typ.MemoryMiB)
	if arm {
		mib -= 64
	}
	mib -= math.Ceil(mib * 0.075)

	perENI := float64(typ.NetworkCards[typ.DefaultCard].MaxENIs)*(float64(typ.IPv4PerENI)-1) + 2
	pods, diskGiB := perENI, 20.0
	if strings.HasPrefix(family, "Windows") {
		pods, diskGiB = 110, 50
	}
	memory := max(0, mib-(11*pods+255)-100)

	milli := 60.0 // of the first CPU
	for cpu := 2; cpu <= typ.VCPUs; cpu++ {
		milli += map[bool]float64{true: 10, false: map[bool]float64{true: 5, false: 2.5}[cpu <= 4]}[cpu == 2]
	}
	return documented{
		milliCPU: int64(typ.VCPUs)*1000 - int64(milli),
		bytes:    int64(memory) << 20,
		storage:  int64(diskGiB*0.9*(1<<30)) - 1<<30,
		pods:     int64(pods),
	}
}

func checkFormulas(t *testing.T, it *catalog.InstanceType, typ offline.Type, family string) {
	t.Helper()
	cpu, memory, disk := it.Allocatable[corev1.ResourceCPU], it.Allocatable[corev1.ResourceMemory], it.Allocatable[corev1.ResourceEphemeralStorage]
	got := documented{cpu.MilliValue(), memory.Value(), disk.Value(), pods(it)}
	if want := byTheBook(typ, family); got != want {
		t.Errorf("%s with %s: %+v, want %+v", it.Name, family, got, want)
	}
	set := labels(it.Requirements)
	for key, want := range map[string]string{
		corev1.LabelInstanceTypeStable: typ.Name,
		awsv1.LabelInstanceCPU:         strconv.Itoa(typ.VCPUs),
		awsv1.LabelInstanceMemory:      strconv.FormatInt(typ.MemoryMiB, 10),
	} {
		if set[key] != want {
			t.Errorf("%s: %s is %q, want %q", it.Name, key, set[key], want)
		}
	}
	if set[awsv1.LabelInstanceFamily]+"."+set[awsv1.LabelInstanceSize] != typ.Name ||
		!strings.HasPrefix(typ.Name, set[awsv1.LabelInstanceCategory]) {
		t.Errorf("%s: category %q, family %q, size %q", typ.Name,
			set[awsv1.LabelInstanceCategory], set[awsv1.LabelInstanceFamily], set[awsv1.LabelInstanceSize])
	}
}

func checkOfferings(t *testing.T, it *catalog.InstanceType, typ offline.Type) {
	t.Helper()
	if len(it.Offerings) != 3*len(typ.UsageClasses) {
		t.Errorf("%s: %d offerings of 3 zones and %v", it.Name, len(it.Offerings), typ.UsageClasses)
	}
	for _, o := range it.Offerings {
		if zone, ok := o.Requirements.Get(corev1.LabelTopologyZone).Single(); !ok || zone != o.Zone {
			t.Errorf("%s: offering of %s requires %s", it.Name, o.Zone, o.Requirements)
		}
		if ct, ok := o.Requirements.Get(karpv1.LabelCapacityType).Single(); !ok || ct != o.CapacityType {
			t.Errorf("%s: offering of %s requires %s", it.Name, o.CapacityType, o.Requirements)
		}
		if o.Available && !it.Requirements.Overlaps(o.Requirements) {
			t.Errorf("%s: available offering %s contradicts %s", it.Name, o.Requirements, it.Requirements)
		}
	}
}

func BenchmarkAll(b *testing.B) {
	_, infos := supported(b)
	r := resolver(b, settings)
	for b.Loop() {
		if _, err := r.All(infos, class(awsv1.AMIFamilyAL2023), market()); err != nil {
			b.Fatal(err)
		}
	}
}
