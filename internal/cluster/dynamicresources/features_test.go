package dynamicresources_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The allocator has a feature that is off by default where an object uses its field: the API server drops it elsewhere.
func TestFeaturesFollowTheFieldsThatAreServed(t *testing.T) {
	edited := func(edit func(*resourcev1.ResourceSliceSpec)) *resourcev1.ResourceSlice {
		s := spec("gpus-n1", 2)
		edit(&s)
		return slice(s, on("n1"))
	}
	skips := edited(func(s *resourcev1.ResourceSliceSpec) {
		s.SkipNodeOperations = []resourcev1.SkipNodeOperation{resourcev1.SkipNodeOperationAll}
	})
	lists := edited(func(s *resourcev1.ResourceSliceSpec) {
		for i := range s.Devices {
			s.Devices[i].Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"numa": {IntValues: []int64{0, 1}}}
		}
	})
	groups := edited(func(s *resourcev1.ResourceSliceSpec) {
		s.Pool.ResourceSliceCount = 2
		for i, mode := range []string{"mig", "mps"} {
			s.Devices[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{
				CounterSet: "gpu", CompatibilityGroups: []string{mode}, Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("1")}},
			}}
		}
	})
	counters := slice(resourcev1.ResourceSliceSpec{
		Driver: driver, Pool: resourcev1.ResourcePool{Name: "gpus-n1", ResourceSliceCount: 2, Generation: 1},
		SharedCounters: []resourcev1.CounterSet{{Name: "gpu", Counters: map[string]resourcev1.Counter{"memory": {Value: resource.MustParse("2")}}}},
	}, on("n1"))
	counters.Name = "counters"
	share := func(amount string) *resourcev1.ResourceClaim {
		c := claim("c", 1)
		c.Spec.Devices.Requests[0].Exactly.Capacity = &resourcev1.CapacityRequirements{
			Requests: map[resourcev1.QualifiedName]resource.Quantity{"cores": resource.MustParse(amount)},
		}
		return c
	}
	shared := edited(func(s *resourcev1.ResourceSliceSpec) {
		yes, least, step := true, resource.MustParse("500m"), resource.MustParse("500m")
		for i := range s.Devices {
			s.Devices[i].AllowMultipleAllocations = &yes
			s.Devices[i].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"cores": {
				Value:         resource.MustParse("1500m"),
				RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &least, ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &least, Step: &step}},
			}}
		}
	})
	selecting := claim("c", 1)
	selecting.Spec.Devices.Requests[0].Exactly.Selectors = []resourcev1.DeviceSelector{
		{CEL: &resourcev1.CELDeviceSelector{Expression: `device.attributes["` + driver + `"].numa.includes(1)`}},
	}
	derived := claim("c", 2)
	derived.Spec.Devices.Requests[0].Exactly.DerivedAttributes = []resourcev1.DeviceDerivedAttribute{
		{Name: driver + "/same", Expression: `device.driver`},
	}
	const placed, none = "n1: a", "no place (Devices): a"
	for _, c := range []struct {
		name   string
		claim  *resourcev1.ResourceClaim
		slices []*resourcev1.ResourceSlice
		node   func(*snapshot.Node)
		want   string
	}{
		{"a device that skips operations of the node, whose kubelet can", claim("c", 1), list(skips), func(n *snapshot.Node) {
			n.DeclaredFeatures = []string{"DRAOptionalNodeOperations"}
		}, placed},
		{"whose kubelet cannot", claim("c", 1), list(skips), func(*snapshot.Node) {}, none},
		{"an attribute with a list", selecting, list(lists), func(*snapshot.Node) {}, placed},
		{"devices of one mode", claim("c", 1), list(counters, groups), func(*snapshot.Node) {}, placed},
		{"devices of two modes do not go together", claim("c", 2), list(counters, groups), func(*snapshot.Node) {}, none},
		{"fractions of a capacity", share("1100m"), list(shared), func(*snapshot.Node) {}, placed},
		{"a derived attribute", derived, list(edited(func(*resourcev1.ResourceSliceSpec) {})), func(*snapshot.Node) {}, placed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := nodes(World(pool(), Pod("a", uses("c"))), Node("n1", "general", c.node))
			if diff := cmp.Diff([]string{c.want}, plan(t, devices(w, list(c.claim), c.slices...))); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
