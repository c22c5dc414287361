package schedule_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestOfferingsWithMoreCapacity(t *testing.T) {
	const device = "example.com/device"
	od, spot := karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot
	holding := func(o catalog.Offering, pairs ...string) catalog.Offering {
		o.Capacity, o.Allocatable = Resources(pairs...), Resources(pairs...)
		return o
	}
	gone := func(o catalog.Offering) catalog.Offering {
		o.Available = false
		return o
	}
	// In z2, on demand, the type has a device.
	some := func(change func(catalog.Offering) catalog.Offering) *catalog.InstanceType {
		return WithOfferings(
			Type("some", 0, "cpu", "4"),
			Offering("z1", od, 1),
			Offering("z1", spot, 0.5),
			change(holding(Offering("z2", od, 2), device, "1")),
		)
	}
	keep := func(o catalog.Offering) catalog.Offering { return o }
	none := Type("none", 0.1, "cpu", "4")
	all := Type("all", 9, "cpu", "4", device, "1")
	wants := Pod("a", Requests(device, "1"))
	checkPlans(t, []planCase{
		{"only that offering is launched", World(singlePool(none, some(keep)), wants), []string{"general some z2: a"}},
		{"others do without", World(singlePool(some(keep)), Pod("a")), []string{"general some: a"}},
		{
			"it is not where the pod may go",
			World(singlePool(none, some(keep)), Pod("a", Requests(device, "1"), Selects(Zone, "z1"))),
			[]string{"unschedulable (Resources): a"},
		},
		{"it cannot be had", World(singlePool(none, some(gone)), wants), []string{"unschedulable (NoOffering): a"}},
		{
			"nor can the others, with more pods than they hold",
			World(singlePool(some(gone)), Pod("a", Requests("cpu", "5"))),
			[]string{"unschedulable (Resources): a"},
		},
		{"a dearer type does not come before", World(singlePool(some(keep), all), wants), []string{"general some z2: a"}},
		{
			"a cheaper one does, and the other is left out",
			World(singlePool(some(keep), Type("cheap", 0.1, "cpu", "4", device, "1")), wants),
			[]string{"general cheap: a"},
		},
		{
			"overridden amounts replace the type's",
			World(
				singlePool(WithOfferings(Type("some", 0, "cpu", "4"), Offering("z1", od, 2), holding(Offering("z2", od, 1), "cpu", "2"))),
				Pod("a", Requests("cpu", "3")),
			),
			[]string{"general some z1: a"},
		},
		{
			"limits count what is launched",
			World(
				[]snapshot.Pool{Pool("general", []*catalog.InstanceType{some(keep)}, Limit(device, "0"))},
				Pod("a"),
				Pod("b", Requests(device, "1")),
			),
			[]string{"general some z1: a", "unschedulable (Limits): b"},
		},
	})
	p := schedule.Solve(World(singlePool(some(keep), Type("cheap", 0.1, "cpu", "4", device, "1")), wants), schedule.Budget{})
	if types := p.Launches[0].InstanceTypes; len(types) != 1 || types[0].Name != "cheap" {
		t.Errorf("%d types in the claim: one may be launched without the device", len(types))
	}
	p = schedule.Solve(World(singlePool(some(keep)), Pod("a")), schedule.Budget{})
	l := &p.Launches[0]
	if len(l.InstanceTypes) != 1 || l.Offering.Price != 0.5 || strings.Join(l.CapacityTypes(), " ") != "on-demand spot" {
		t.Errorf("a pod that needs no device: %d types, offering %+v, capacity types %v", len(l.InstanceTypes), l.Offering, l.CapacityTypes())
	}
	for _, r := range l.ClaimRequirements() {
		if r.Key == corev1.LabelInstanceTypeStable && len(r.Values) != 1 {
			t.Errorf("types of the claim: %v", r.Values)
		}
	}
}

// Where a type is not sold, no offering of it keeps the claim from leaving the zone open.
func TestOfferingsThatAreNotSoldLimitNoClaim(t *testing.T) {
	od := karpv1.CapacityTypeOnDemand
	small := Offering("z3", od, 1)
	small.Allocatable = Resources("cpu", "1")
	it := soldIn(WithOfferings(Type("some", 0, "cpu", "4"), Offering("z1", od, 1), Offering("z2", od, 1), small), "z1", "z2")
	s := World(singlePool(it), Pod("a", Requests("cpu", "3")))
	p := solveValid(t, s)
	if len(p.Launches) != 1 || p.Launches[0].Requirements.Defines(Zone) {
		t.Errorf("%d launches, want one that leaves the zone open", len(p.Launches))
	}
}

// No claim of two types can be sure to have the device: one has it in z1 on demand, the other in z2 as spot. Where two types
// are demanded, another pool takes the pod.
func TestMinValuesThatNoClaimCanReachLeavePodsToOtherPools(t *testing.T) {
	const device = "example.com/device"
	with := func(name, zone, capacityType string) *catalog.InstanceType {
		it := Type(name, 1, "cpu", "4")
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.Zone == zone && o.CapacityType == capacityType {
				o.Capacity, o.Allocatable = Resources(device, "1"), Resources(device, "1")
			}
		}
		return it
	}
	types := []*catalog.InstanceType{with("x", "z1", karpv1.CapacityTypeOnDemand), with("y", "z2", karpv1.CapacityTypeSpot)}
	two := func(np *karpv1.NodePool) {
		Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists)(np)
		MinValues(2)(np)
	}
	s := World([]snapshot.Pool{Pool("choosy", types, Weight(9), two), Pool("other", types)}, Pod("a", Requests(device, "1")))
	if p := solveValid(t, s); len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", p.Rejected[0].Reasons)
	}
}

// A claim that must leave three capacity types open may not become a reserved instance with less memory.
func TestReservationsOfSmallerVariantsAreExcluded(t *testing.T) {
	small := WithReservation(Type("small", 0.1, "cpu", "2", "memory", "8Gi"), "r-1", 1)
	for i := range small.Offerings {
		if o := &small.Offerings[i]; o.ReservationID != "" {
			o.Capacity, o.Allocatable = Resources("memory", "1Gi"), Resources("memory", "1Gi")
		}
	}
	full := WithReservation(Type("medium", 0.2, "cpu", "4", "memory", "16Gi"), "r-2", 0)
	three := func(np *karpv1.NodePool) { Require(Capacity, corev1.NodeSelectorOpExists)(np); MinValues(3)(np) }
	types := []*catalog.InstanceType{small, full}
	s := World([]snapshot.Pool{Pool("choosy", types, Weight(9), three), Pool("other", types)}, Pod("a", Requests("memory", "3Gi")))
	s.Labels.ReservationID, s.Labels.WellKnown[ReservationID] = ReservationID, true
	p := solveValid(t, s)
	if len(p.Rejected) > 0 {
		t.Errorf("rejected: %v", p.Rejected[0].Reasons)
	}
}

// The cheapest type holds the pod as spot only. A claim of it leaves one capacity type; a claim of the other type leaves two.
func TestClaimsLeaveOutTheCheapestTypeForMinValues(t *testing.T) {
	small, other := Type("small", 0.1, "cpu", "4", "memory", "8Gi"), Type("other", 0.2, "cpu", "4", "memory", "8Gi")
	for i := range small.Offerings {
		if o := &small.Offerings[i]; o.CapacityType == karpv1.CapacityTypeOnDemand {
			o.Capacity, o.Allocatable = Resources("memory", "1Gi"), Resources("memory", "1Gi")
		}
	}
	two := func(np *karpv1.NodePool) { Require(Capacity, corev1.NodeSelectorOpExists)(np); MinValues(2)(np) }
	s := World([]snapshot.Pool{Pool("choosy", []*catalog.InstanceType{small, other}, two)}, Pod("a", Requests("memory", "3Gi")))
	p := solveValid(t, s)
	if len(p.Launches) != 1 || p.Launches[0].InstanceTypes[0].Name != "other" {
		t.Errorf("launches %v, rejected %v; want one of type other", p.Launches, p.Rejected)
	}
}

// A claim reserves limits for the types that it names. Here it leaves out the large type, which has the device in one of its
// zones only, so the limit is enough for a second node.
func TestClaimsReserveNoLimitsForTypesThatTheyLeaveOut(t *testing.T) {
	const device = "example.com/device"
	small, other := Type("small", 0.1, "cpu", "2", device, "1"), Type("other", 0.2, "cpu", "2", device, "1")
	large := Type("large", 0.3, "cpu", "8")
	large.Offerings[0].Capacity, large.Offerings[0].Allocatable = Resources(device, "1"), Resources(device, "1")
	two := func(np *karpv1.NodePool) {
		Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists)(np)
		MinValues(2)(np)
	}
	for policy, types := range map[snapshot.MinValuesPolicy][]*catalog.InstanceType{
		snapshot.MinValuesBestEffort: {small, large},
		snapshot.MinValuesStrict:     {small, other, large},
	} {
		s := World([]snapshot.Pool{Pool("choosy", types, two, Limit("cpu", "8"))}, Pods(2, "a", Requests(device, "1"))...)
		s.Settings.MinValuesPolicy = policy
		if p := solveValid(t, s); len(p.Launches) != 2 {
			t.Errorf("%s: %d launches, want 2; %d pods rejected", policy, len(p.Launches), len(p.Rejected))
		}
	}
}
