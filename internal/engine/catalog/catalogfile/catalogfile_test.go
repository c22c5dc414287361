package catalogfile_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/catalogfile"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

func TestDecode(t *testing.T) {
	types, err := catalogfile.Decode([]byte(`{"name": "x", "zones": ["a", "b"], "types": [
		{"name": "z.two", "arch": "arm64", "os": ["linux"], "allocatable": {"cpu": 2, "memory": "4Gi", "pods": "8"}},
		{"name": "a.one", "arch": "amd64", "os": ["linux", "windows"], "capacity": {"cpu": "2", "memory": "4Gi"}, "allocatable": {"cpu": "1900m", "memory": "3Gi"},
		 "labels": {"example.com/disk": "nvme", "beta.kubernetes.io/arch": "ignored"},
		 "offerings": [{"zone": "b", "capacityType": "spot", "price": 0.1}, {"zone": "a", "capacityType": "on-demand", "price": 0.3, "available": false}]}
	]}`), requirement.CoreLabels())
	if err != nil {
		t.Fatal(err)
	}
	if len(types) != 2 || types[0].Name != "a.one" || types[1].Name != "z.two" {
		t.Fatalf("types %v, want them sorted by name", types)
	}
	one, two := types[0], types[1]
	for key, want := range map[string]string{
		corev1.LabelInstanceTypeStable: "a.one", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux windows",
		"example.com/disk": "nvme", corev1.LabelTopologyZone: "a b", karpv1.LabelCapacityType: "on-demand spot",
	} {
		if got := strings.Join(one.Requirements.Get(key).Values(), " "); got != want {
			t.Errorf("label %s: %q, want %q", key, got, want)
		}
	}
	if best, ok := one.Cheapest(requirement.NewSet()); !ok || best.Zone != "b" || best.Price != 0.1 {
		t.Errorf("cheapest %+v, want the one that is available", best)
	}
	for _, tt := range []struct {
		what string
		in   corev1.ResourceList
		name corev1.ResourceName
		want string
	}{
		{"capacity as given", one.Capacity, corev1.ResourceCPU, "2"},
		{"allocatable as given", one.Allocatable, corev1.ResourceCPU, "1900m"},
		{"pods that are not given", one.Allocatable, corev1.ResourcePods, "110"},
		{"a quantity that is a number", two.Allocatable, corev1.ResourceCPU, "2"},
		{"capacity that is not given", two.Capacity, corev1.ResourceMemory, "4Gi"},
	} {
		if q := tt.in[tt.name]; q.String() != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, &q, tt.want)
		}
	}
}

func TestReservations(t *testing.T) {
	const key = "example.com/reservation"
	labels := requirement.CoreLabels()
	labels.ReservationID = key
	types, err := catalogfile.Decode([]byte(`{"types": [{"name": "m", "allocatable": {"cpu": "1", "memory": "1Gi"}, "offerings": [
		{"zone": "a", "capacityType": "reserved", "price": 0, "reservation": "cr-1", "remaining": 2},
		{"zone": "a", "capacityType": "reserved", "price": 0, "reservation": "cr-2"},
		{"zone": "a", "capacityType": "on-demand", "price": 1}]}]}`), labels)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range types[0].Offerings {
		got = append(got, fmt.Sprintf("%s %d %v: %s", o.ReservationID, o.Remaining, o.Available, o.Requirements.Get(key)))
	}
	want := []string{
		"cr-1 2 true: " + requirement.In(key, "cr-1").String(), "cr-2 0 false: " + requirement.In(key, "cr-2").String(),
		" 0 true: " + requirement.DoesNotExist(key).String(),
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	machine := func(fields string) string { return `{"zones": ["a"], "types": [{"name": "m", ` + fields + `}]}` }
	const room = `"allocatable": {"cpu": "1", "memory": "1Gi"}`
	for _, tt := range []struct{ name, text, want string }{
		{"not JSON", `{`, "unexpected EOF"},
		{"no bytes", "", "is empty"},
		{"a list", `[]`, "is not an object but array"},
		{"two catalogs", `{} {}`, "continues after the end of the catalog"},
		{"unknown field", `{"zone": ["a"]}`, `unknown field "zone"`},
		{"unknown field of a type", machine(`"cpus": 1`), `types[0] (m): unknown field "cpus"`},
		{
			"unknown field of an offering", machine(room + `, "offerings": [{"region": "a"}]`),
			`types[0] (m): offerings[0]: unknown field "region"`,
		},
		{"a name that is a number", `{"types": [{"name": 5}]}`, "types[0]: name: is a number, which cannot be string"},
		{"a zone twice", `{"zones": ["a", "a"]}`, `zones[1]: "a" is listed twice`},
		{"architecture", machine(room + `, "arch": "x86_64"`), `types[0] (m): arch: "x86_64" must be one of ["amd64" "arm64"]`},
		{"operating system", machine(room + `, "os": ["linux", "plan9"]`), `types[0] (m): os[1]: "plan9" must be one of`},
		{"empty", `{}`, "types: is empty"},
		{"no name", `{"types": [{}]}`, "types[0]: name: is missing"},
		{"no memory", machine(`"allocatable": {"cpu": "1"}`), "types[0] (m): allocatable: has no memory"},
		{"quantity", machine(`"allocatable": {"cpu": "one"}`), `allocatable.cpu: "one" is not a quantity`},
		{"negative quantity", machine(`"allocatable": {"cpu": "-1"}`), "allocatable.cpu: is negative"},
		{"more than there is", machine(room + `, "capacity": {"cpu": "500m"}`), "more than the capacity of 500m"},
		{"no zone", machine(room + `, "offerings": [{}]`), "offerings[0].zone: is missing"},
		{"unknown zone", machine(room + `, "offerings": [{"zone": "b"}]`), `offerings[0].zone: "b" is not among`},
		{"capacity type", machine(room + `, "offerings": [{"zone": "a", "capacityType": "cheap"}]`), "offerings[0].capacityType"},
		{"price", machine(room + `, "offerings": [{"zone": "a", "capacityType": "spot", "price": -1}]`), "offerings[0].price: is negative"},
		{"no price", machine(room + `, "offerings": [{"zone": "a", "capacityType": "spot"}]`), "offerings[0].price: is missing"},
		{"for nothing", machine(room + `, "offerings": [{"zone": "a", "capacityType": "spot", "price": 0}]`), "offerings[0].price: is 0"},
		{
			"a price in words", machine(room + `, "offerings": [{"zone": "a", "capacityType": "spot", "price": "0.1"}]`),
			"offerings[0]: price: is a string, which cannot be float64",
		},
		{
			"reservation on demand", machine(room + `, "offerings": [{"zone": "a", "capacityType": "on-demand", "reservation": "cr-1"}]`),
			`offerings[0].reservation: the capacity type is "on-demand"`,
		},
		{
			"room without reservation", machine(room + `, "offerings": [{"zone": "a", "capacityType": "reserved", "remaining": 1}]`),
			`offerings[0].remaining: 1 of reservation ""`,
		},
		{
			"less than no room",
			machine(room + `, "offerings": [{"zone": "a", "capacityType": "reserved", "reservation": "cr-1", "remaining": -1}]`),
			"offerings[0].remaining: -1",
		},
		{"name twice", `{"types": [{"name": "m", ` + room + `}, {"name": "m", ` + room + `}]}`, "types[1] (m): name: is listed twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := catalogfile.Decode([]byte(tt.text), requirement.CoreLabels())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
