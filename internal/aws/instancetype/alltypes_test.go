package instancetype_test

import (
	"slices"
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

// Each type of EC2 with each family satisfies the invariants of the catalog.
func TestEveryTypeWithEveryFamily(t *testing.T) {
	types, infos := supported(t)
	r := resolver(t, settings)
	for _, family := range families {
		resolved, err := r.ResolveAll(infos, class(family), market())
		if err != nil {
			t.Fatal(err)
		}
		if len(resolved) != len(types) ||
			!slices.IsSortedFunc(resolved, func(a, b *catalog.InstanceType) int { return strings.Compare(a.Name, b.Name) }) {
			t.Fatalf("%s: %d of %d types, or not sorted", family, len(resolved), len(types))
		}
		for i, it := range resolved {
			checkLabels(t, it)
			checkResources(t, it)
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

func checkOfferings(t *testing.T, it *catalog.InstanceType, typ offline.Type) {
	t.Helper()
	sold := slices.DeleteFunc(slices.Clone(typ.UsageClasses), func(class string) bool { return class == "capacity-block" })
	if len(it.Offerings) != 3*len(sold) {
		t.Errorf("%s: %d offerings of 3 zones and %v", it.Name, len(it.Offerings), sold)
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
		if _, err := r.ResolveAll(infos, class(awsv1.AMIFamilyAL2023), market()); err != nil {
			b.Fatal(err)
		}
	}
}
