package schedule_test

import (
	"slices"
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// soldIn is the type as catalogs of EC2 have one that only some zones offer: it names these, and lists offerings in the
// others as unavailable ones.
func soldIn(it *catalog.InstanceType, zones ...string) *catalog.InstanceType {
	for i := range it.Offerings {
		if o := &it.Offerings[i]; !slices.Contains(zones, o.Zone) {
			o.Available, o.UnavailableReason = false, catalog.ReasonNotOffered
		}
	}
	return WithLabel(it, Zone, zones...)
}

// A node of a type that is sold in one zone leaves the other zones to pods that keep away from its pods.
func TestNodesComeUpOnlyWhereTheirTypesAreSold(t *testing.T) {
	s := World(
		[]snapshot.Pool{Pool("general", []*catalog.InstanceType{
			soldIn(Type("m.large", 0.20, "cpu", "4", "memory", "16Gi"), "z1"), Type("m.small", 0.05, "cpu", "1", "memory", "4Gi"),
		})},
		Pod("large", Requests("cpu", "3"), Labeled("app", "large")), Pod("small", Requests("cpu", "500m"), Apart(Zone, "large")),
	)
	if p := solveValid(t, s); len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", p.Rejected[0].Reasons)
	}
}

// A capacity type that is only listed where the type is not sold is none to spread over.
func TestCapacityTypesAreThoseOfZonesWhereTypesAreSold(t *testing.T) {
	it := soldIn(Type("m.small", 0.05, "cpu", "1", "memory", "4Gi"), "z1")
	it.Offerings = slices.DeleteFunc(it.Offerings, func(o catalog.Offering) bool {
		return o.Zone == "z1" && o.CapacityType == karpv1.CapacityTypeOnDemand
	})
	web := Pods(3, "web", Labeled("app", "web"), Spread(Capacity, 2, "web"))
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{it})}, web...)
	if p := solveValid(t, s); len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", p.Rejected[0].Reasons)
	}
}
