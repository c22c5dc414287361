package dynamicresources_test

import (
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

func text(value string) resourcev1.DeviceAttribute {
	return resourcev1.DeviceAttribute{StringValue: &value}
}

// gpus is a pool of n GPUs with these attributes and memory.
func gpus(n int, memory string, attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute) resourcev1.ResourceSliceSpec {
	s := spec("gpus", n)
	for i := range s.Devices {
		s.Devices[i].Attributes = attributes
		s.Devices[i].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}}
	}
	return s
}

type attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute

// A difference between what plans expect of a node and what its drivers publish is named.
func TestMissingDevices(t *testing.T) {
	expected := gpus(2, "15Gi", attributes{"model": text("T4"), "driverVersion": text(catalog.UnknownValue)})
	full := attributes{"model": text("T4"), "driverVersion": text("580"), "uuid": text("1")}
	yes := true
	shared := gpus(2, "15Gi", full)
	for i := range shared.Devices {
		shared.Devices[i].AllowMultipleAllocations = &yes
	}
	for _, tt := range []struct {
		name      string
		published []resourcev1.ResourceSliceSpec
		drivers   []string
		want      string
	}{
		{"as expected, and more", list(gpus(3, "16Gi", full)), list(driver), ""},
		{"nothing, of a driver that the node was not launched for", nil, list(network), ""},
		{
			"nothing", nil, list(driver),
			"expected 2 devices of DRA driver gpu.example.com, but 2 of them were not published: dev-0: there are fewer devices",
		},
		{"one of two", list(gpus(1, "15Gi", full)), list(driver), "but 1 of them were not published: dev-1: there are fewer devices"},
		{
			"another model", list(gpus(2, "15Gi", attributes{"model": text("L4"), "driverVersion": text("580")})), list(driver),
			"attribute model is L4 instead of T4",
		},
		{"an attribute less", list(gpus(2, "15Gi", attributes{"model": text("T4")})), list(driver), "it has no attribute driverVersion"},
		{"memory that is 2 % less", list(gpus(2, "15053Mi", full)), list(driver), ""}, // of 15360Mi
		{"memory that is 2 % more", list(gpus(2, "15667Mi", full)), list(driver), ""},
		{"less memory than that", list(gpus(2, "15052Mi", full)), list(driver), "capacity memory is 15052Mi instead of 15Gi"},
		{"less memory", list(gpus(2, "14Gi", full)), list(driver), "capacity memory is 14Gi instead of 15Gi"},
		{"shared", list(shared), list(driver), "the driver lets several claims share it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(dynamicresources.Missing(list(expected), tt.published, tt.drivers), "; ")
			if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Only complete pools of a node's own devices count, in their highest generation.
func TestOwnDevices(t *testing.T) {
	of := func(name string, generation, count int64) *resourcev1.ResourceSlice {
		s := slice(spec(name, 1), on("n1"))
		s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = generation, count
		return s
	}
	half := of("half", 1, 2)
	for _, tt := range []struct {
		name      string
		published []*resourcev1.ResourceSlice
		want      []string
	}{
		{"complete", list(of("b", 1, 1), of("a", 1, 1)), list("a/1", "b/1")},
		{"incomplete", list(half), nil},
		{"a newer generation", list(of("a", 2, 1), of("a", 1, 1)), list("a/2")},
		{"a newer generation that is not complete", list(of("a", 1, 1), of("a", 2, 2)), nil},
		{"reached over the network", list(slice(spec("net", 1), everywhere)), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, s := range dynamicresources.OwnDevices(tt.published)["n1"] {
				got = append(got, s.Pool.Name+"/"+string(rune('0'+s.Pool.Generation)))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// What names one device is not learned, and neither is a device that its driver has tainted.
func TestLearnedDevices(t *testing.T) {
	s := gpus(2, "15Gi", attributes{
		"model": text("T4"), "uuid": text("GPU-9a1c3b5d-0000-4f6e-8d2b-123456789abc"), "mac": text("0a:1b:2c:3d:4e:5f"),
		"ip": text("10.0.0.1"), "net": text("10.0.0.0/24"), "root": text("pci0000:00"),
	})
	s.Devices[1].Taints = []resourcev1.DeviceTaint{{Key: "unhealthy", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
	got := dynamicresources.Learned(list(s))[0].Devices
	if len(got) != 1 || len(got[0].Attributes) != 2 ||
		got[0].Attributes["model"].StringValue == nil || got[0].Attributes["root"].StringValue == nil {
		t.Errorf("learned %+v", got)
	}
	if len(s.Devices) != 2 || len(s.Devices[0].Attributes) != 6 {
		t.Error("the published slice was changed")
	}
}
