package offlineregion_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

func open(t *testing.T, name string) (*offlineregion.Region, error) {
	t.Helper()
	data, err := offline.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return offlineregion.New(data, instancetype.Settings{Region: name, MemoryOverhead: 0.075})
}

func typesOf(t *testing.T, name string, class *awsv1.EC2NodeClass) []*catalog.InstanceType {
	t.Helper()
	r, err := open(t, name)
	if err != nil {
		t.Fatal(err)
	}
	types, err := r.Types(class)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func find(t *testing.T, types []*catalog.InstanceType, name string) *catalog.InstanceType {
	t.Helper()
	for _, it := range types {
		if it.Name == name {
			return it
		}
	}
	t.Fatalf("there is no %s", name)
	return nil
}

func available(it *catalog.InstanceType) (zones []string) {
	for _, o := range it.Offerings {
		if o.Available && !slices.Contains(zones, o.Zone) {
			zones = append(zones, o.Zone)
		}
	}
	return zones
}

func TestEveryBuiltInRegionSells(t *testing.T) {
	for _, tt := range []struct {
		region string
		zones  []string
	}{
		{"us-east-1", []string{"us-east-1a", "us-east-1b", "us-east-1d", "us-east-1e", "us-east-1f"}},
		{"us-west-2", []string{"us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"}},
		{"eu-west-1", []string{"eu-west-1a", "eu-west-1b", "eu-west-1c"}},
	} {
		types := typesOf(t, tt.region, nil)
		if len(types) < 500 {
			t.Errorf("%s: only %d types", tt.region, len(types))
		}
		if got := available(find(t, types, "m5.large")); !slices.Equal(got, tt.zones) {
			t.Errorf("%s: m5.large is available in %v, want %v", tt.region, got, tt.zones)
		}
	}
}

func TestEveryRegionHasTypesThatCanBeHad(t *testing.T) {
	const least = 200
	for _, name := range offline.Regions() {
		n := 0
		for _, it := range typesOf(t, name, nil) {
			if len(available(it)) > 0 {
				n++
			}
		}
		if n < least {
			t.Errorf("%s: %d types can be had, want at least %d", name, n, least)
		}
	}
}

func TestUnknownRegion(t *testing.T) {
	if _, err := open(t, "mars-1"); err == nil || !strings.Contains(err.Error(), "us-east-1") {
		t.Errorf("error %v, want one that names the regions that there are", err)
	}
}

func TestNodeClassDecides(t *testing.T) {
	class := &awsv1.EC2NodeClass{}
	class.Spec.AMISelectorTerms = []awsv1.AMISelectorTerm{{Alias: "windows2022@latest"}}
	class.Status.Subnets = []awsv1.Subnet{{ID: "subnet-1", Zone: "us-east-1b", ZoneID: "use1-az2"}}
	it := find(t, typesOf(t, "us-east-1", class), "m5.large")
	if got := available(it); !slices.Equal(got, []string{"us-east-1b"}) {
		t.Errorf("available in %v, want the zone of the subnet only", got)
	}
	if os, _ := it.Requirements.Get(corev1.LabelOSStable).Single(); os != "windows" {
		t.Errorf("os %q, want that of the image", os)
	}
}

// In another account zone a may have the ID that suggests c, in which this type is not offered.
func TestZonesOfAnAccount(t *testing.T) {
	class := &awsv1.EC2NodeClass{}
	class.Status.Subnets = []awsv1.Subnet{
		{ID: "subnet-1", Zone: "us-east-1a", ZoneID: "use1-az3"},
		{ID: "subnet-2", Zone: "us-east-1c", ZoneID: "use1-az1"},
	}
	if got := available(find(t, typesOf(t, "us-east-1", class), "m5.large")); !slices.Equal(got, []string{"us-east-1c"}) {
		t.Errorf("available in %v, want the zone whose ID has it", got)
	}
}
