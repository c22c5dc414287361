package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A reservation is one capacity type: a claim that must allow several stays outside, and never counts it.
func TestMinValuesOfCapacityTypesLeavesReservationsAlone(t *testing.T) {
	for _, c := range []struct {
		name            string
		minValues, want int
	}{{"two of them", 2, 1}, {"three, which only a claim inside and outside could have", 3, 0}} {
		t.Run(c.name, func(t *testing.T) {
			it := WithReservation(Type("m", 0.1, "cpu", "4", "memory", "16Gi"), "r-1", 2)
			pool := Pool("general", []*catalog.InstanceType{it}, Require(Capacity, exists), MinValues(c.minValues))
			s := World([]snapshot.Pool{pool}, Pod("a"))
			s.Settings.MinValuesPolicy = snapshot.MinValuesStrict
			p := solveValid(t, s)
			if len(p.Launches) != c.want {
				t.Fatalf("%d launches, not %d: %v", len(p.Launches), c.want, firstReasons(p))
			}
			if c.want > 0 && p.Launches[0].Offering.CapacityType == karpv1.CapacityTypeReserved {
				t.Error("launched into the reservation")
			}
		})
	}
}

// A node in a reservation comes up in the zone of that: pods that keep apart from its pods go to other zones.
func TestPodsAvoidTheZoneOfAReservationOnly(t *testing.T) {
	it := WithReservation(Type("m", 0.1, "cpu", "4", "memory", "16Gi"), "r-1", 1)
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{it})},
		Pod("a", Requests("cpu", "3"), Apart(Zone, "b")), Pod("b", Labeled("app", "b"), Requests("cpu", "2")))
	if p := solveValid(t, s); len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", firstReasons(p))
	}
}

// Of a type with offerings of different size, none is named that is too small, even if it is unavailable when the plan
// is made.
func TestUnavailableOfferingThatIsTooSmallIsNotNamed(t *testing.T) {
	it := Type("m", 0.1, "cpu", "4", "memory", "16Gi")
	offerings := append([]catalog.Offering{}, it.Offerings...)
	for i := range offerings {
		if o := &offerings[i]; o.Zone == "z1" {
			o.Allocatable = corev1.ResourceList{"example.com/widget": Resources("x", "1")["x"]}
			o.Capacity = o.Allocatable
		} else {
			o.Available = false
		}
	}
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{WithOfferings(it, offerings...)})},
		Pod("a", Requests("cpu", "1", "example.com/widget", "1")))
	p := solveValid(t, s)
	if len(p.Launches) != 1 {
		t.Fatalf("%d launches: %v", len(p.Launches), firstReasons(p))
	}
	if zone, single := p.Launches[0].Requirements.Get(Zone).Single(); !single || zone != "z1" {
		t.Errorf("the claim allows zones %v", p.Launches[0].Requirements.Get(Zone))
	}
}
