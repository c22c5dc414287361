package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// twoReserved are the two smaller common types, with capacity reservations of these sizes.
func twoReserved(small, medium int) []*catalog.InstanceType {
	return []*catalog.InstanceType{
		WithReservation(
			Type("m.small", 0.05, "cpu", "1"),
			"cr-small",
			small,
		), WithReservation(Type("m.medium", 0.10, "cpu", "2"), "cr-medium", medium),
	}
}

func oneReserved(id string, n int) []*catalog.InstanceType {
	return singlePool(WithReservation(Type("m.small", 0.05, "cpu", "1"), id, n))[0].InstanceTypes
}

func onlyReserved(p *corev1.Pod) { Selects(Capacity, karpv1.CapacityTypeReserved)(p) }

// claimInFlight is a claim without an instance that may use one of the reservations.
func claimInFlight(name string, ids ...string) snapshot.Node {
	return Node(name, "general", func(n *snapshot.Node) {
		n.Launched, n.Registered, n.Initialized = false, false, false
		n.Requirements = []karpv1.Requirement{{Key: ReservationID, Operator: in, Values: ids}}
	})
}

func TestReservedCapacity(t *testing.T) {
	huge := WithReservation(Type("x.huge", 5, "cpu", "64"), "cr-1", 1)
	heavy := func(types []*catalog.InstanceType) snapshot.Pool { return Pool("heavy", types, Weight(100)) }
	checkPlans(t, []planCase{
		{
			"all reservations are used in one pass, and other capacity for the rest",
			World([]snapshot.Pool{Pool("general", twoReserved(1, 1))}, Pods(3, "a", Requests("cpu", "1"))...),
			[]string{"general m.medium in cr-medium: a x2", "general m.small in cr-small: a"},
		},
		{
			"and the fourth does not wait",
			World([]snapshot.Pool{Pool("general", twoReserved(1, 1))}, Pods(4, "a", Requests("cpu", "1"))...),
			[]string{"general m.medium in cr-medium: a x2", "general m.small in cr-small: a", "general m.small: a"},
		},
		{
			"two pools share a reservation of one",
			World(
				[]snapshot.Pool{Pool("x", oneReserved("cr-1", 1)), Pool("y", oneReserved("cr-1", 1))},
				Pod("a", Selects(karpv1.LabelNodePool, "x")),
				Pod("b", Selects(karpv1.LabelNodePool, "y")),
			),
			[]string{"x m.small in cr-1: a", "y m.small: b"},
		},
		{
			"the least that any pool says holds",
			World(
				[]snapshot.Pool{Pool("x", oneReserved("cr-1", 2)), Pool("y", oneReserved("cr-1", 0))},
				Pod("a", Selects(karpv1.LabelNodePool, "x")),
			),
			[]string{"x m.small: a"},
		},
		{
			"two pools, a reservation each",
			World(
				[]snapshot.Pool{Pool("x", oneReserved("cr-1", 1)), Pool("y", oneReserved("cr-2", 1))},
				Pod("a", Selects(karpv1.LabelNodePool, "x")),
				Pod("b", Selects(karpv1.LabelNodePool, "y")),
			),
			[]string{"x m.small in cr-1: a", "y m.small in cr-2: b"},
		},
		{
			"two reservations of one type, one pod more than they hold",
			World(
				singlePool(WithReservation(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", 1), "cr-2", 2)),
				Pods(4, "a", Requests("cpu", "1"))...),
			[]string{"general m.small in cr-1: a", "general m.small in cr-2: a", "general m.small in cr-2: a", "general m.small: a"},
		},
		{
			"the heavier pool keeps its pods when its reservation is used up",
			World([]snapshot.Pool{heavy(oneReserved("cr-1", 1)), Pool("light", oneReserved("cr-2", 1))}, Pods(2, "a", Requests("cpu", "1"))...),
			[]string{"heavy m.small in cr-1: a", "heavy m.small: a"},
		},
		{
			"a preferred pool is preferred without its reservation, too",
			World(
				[]snapshot.Pool{Pool("x", oneReserved("cr-1", 1)), Pool("y", oneReserved("cr-2", 1))},
				Pods(2, "a", Requests("cpu", "1"), Prefers(1, Expr(karpv1.LabelNodePool, in, "x")))...),
			[]string{"x m.small in cr-1: a", "x m.small: a"},
		},
		{
			"pods that keep together share a reservation of one",
			World(
				singlePool(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", 1)),
				Pods(2, "a", Requests("cpu", "500m"), onlyReserved, Labeled("app", "a"), Near(Host, "a"))...),
			[]string{"general m.small in cr-1: a x2"},
		},
		{
			"less than nothing is nothing",
			World(singlePool(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", -3)), Pod("a", onlyReserved)),
			[]string{"unschedulable (NoOffering): a"},
		},
		{
			"claims promise more than there is",
			withNodes(
				World(singlePool(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", 1)), Pod("a")),
				claimInFlight("n1", "cr-1", "cr-unknown"),
				claimInFlight("n2", "cr-1"),
			),
			[]string{"general m.small: a"},
		},
		{
			"a pod that only a reservation fits waits for nodes in flight",
			World(
				singlePool(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", 1)),
				Pods(2, "a", Requests("cpu", "1"), onlyReserved)...),
			[]string{"general m.small in cr-1: a", "unschedulable (ReservedCapacity): a"},
		},
		{
			"what cannot be had but reserved comes before larger pods that can",
			World(
				singlePool(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", 1)),
				Pod("large", Requests("cpu", "1")),
				Pod("small", Requests("cpu", "800m"), onlyReserved),
			),
			[]string{"general m.small in cr-1: small", "general m.small: large"},
		},
		{
			"and what can be in one reservation only before what can be in any",
			World(
				[]snapshot.Pool{Pool("general", twoReserved(1, 1))},
				Pod("any", Requests("cpu", "900m"), onlyReserved),
				Pod("one", Requests("cpu", "800m"), Selects(ReservationID, "cr-small")),
			),
			[]string{"general m.small in cr-small: one", "general m.medium in cr-medium: any"},
		},
		{
			"also when only the reserved type is large enough",
			World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{
				Type("m.small", 0.05, "cpu", "1"), WithOfferings(huge, huge.Offerings[len(huge.Offerings)-1]),
			})}, Pod("huge", Requests("cpu", "40")), Pod("web", Requests("cpu", "500m"))),
			[]string{"general x.huge in cr-1: huge, web"},
		},
		{
			"a claim of an earlier pass holds all that it may take",
			withNodes(
				World([]snapshot.Pool{Pool("general", twoReserved(1, 1))}, Pod("a", onlyReserved)),
				claimInFlight("n1", "cr-small", "cr-medium"),
			),
			[]string{"unschedulable (ReservedCapacity): a"},
		},
		{
			"a claim names all reservations that no other claim needs",
			World([]snapshot.Pool{Pool("general", twoReserved(2, 1))}, Pod("a", Requests("cpu", "600m"))),
			[]string{"general m.small in cr-medium+cr-small: a"},
		},
		{
			"a pod may ask for a reservation by its ID",
			World([]snapshot.Pool{Pool("general", twoReserved(1, 1))}, Pod("a", Selects(ReservationID, "cr-medium"))),
			[]string{"general m.medium in cr-medium: a"},
		},
		{
			"or for none",
			World([]snapshot.Pool{Pool("general", twoReserved(1, 1))}, Pod("a", Needs(Expr(ReservationID, absent)))),
			[]string{"general m.small: a"},
		},
		{
			"a pool need not use reservations",
			World([]snapshot.Pool{Pool("general", twoReserved(1, 1), Require(Capacity, in, karpv1.CapacityTypeSpot))}, Pod("a")),
			[]string{"general m.small: a"},
		},
		{
			"a reservation is left for a pod that has no other place",
			World([]snapshot.Pool{Pool("general", twoReserved(1, 0), Limit("nodes", "1"))}, Pods(2, "a", Requests("cpu", "800m"))...),
			[]string{"general m.medium: a x2"},
		},
		{
			"minValues that reservations cannot satisfy use other capacity",
			World(
				[]snapshot.Pool{Pool("general", twoReserved(0, 1), Require(corev1.LabelInstanceTypeStable, exists), MinValues(2))},
				Pod("a", Requests("cpu", "500m")),
			),
			[]string{"general m.small: a"},
		},
	})
}

// Deferred pods get no warning events, so the distinction is visible to operators.
func TestDeferred(t *testing.T) {
	s := World(
		singlePool(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", 1)),
		Pod(
			"first",
			Requests("cpu", "1"),
			onlyReserved,
		),
		Pod("second", Requests("cpu", "999m"), onlyReserved),
		Pod("large", Requests("cpu", "9"), onlyReserved),
	)
	got := map[string]bool{}
	for _, r := range schedule.Solve(s, schedule.Budget{}).Rejected {
		got[r.Pod.Name] = r.Deferred()
	}
	if want := "map[large:false second:true]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// A claim names the reservations that it keeps and no others: the launch takes no slot that the plan gave to another.
func TestClaimOfAReservation(t *testing.T) {
	s := World(
		[]snapshot.Pool{Pool("general", twoReserved(1, 0), Require(Capacity, in, "reserved", "on-demand"))},
		Pods(2, "a", Requests("cpu", "1"))...)
	var got []string
	for _, l := range schedule.Solve(s, schedule.Budget{}).Launches {
		line := ""
		for _, r := range l.ClaimRequirements() {
			if slices.Contains([]string{Capacity, ReservationID, corev1.LabelInstanceTypeStable}, r.Key) {
				line += fmt.Sprintf(" %s=%s", r.Key[strings.LastIndex(r.Key, "/")+1:], strings.Join(r.Values, ","))
			}
		}
		got = append(got, fmt.Sprintf("$%.9f%s", l.Offering.Price, line))
	}
	slices.Sort(got)
	want := []string{
		"$0.000000005 reservation=cr-small capacity-type=reserved instance-type=m.small",
		"$0.050000000 capacity-type=on-demand instance-type=m.small,m.medium",
	}
	if !slices.Equal(got, want) {
		t.Errorf("claims\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The lower bound counts reservations as free, up to the room that they have.
func TestLowerBoundWithReservations(t *testing.T) {
	pods := Pods(40, "a", Requests("cpu", "500m"))
	stats := schedule.Solve(
		World([]snapshot.Pool{Pool("general", twoReserved(10, 2), Require(Capacity, in, "reserved", "on-demand"))}, pods...),
		schedule.Budget{},
	).Stats
	if stats.HourlyCost < 0.2999 || stats.HourlyCost > 0.3001 || stats.LowerBound > stats.HourlyCost || stats.LowerBound < 0.29 {
		t.Errorf("14 of 20 cores are reserved, and the others cost $0.05 each: cost %v, bound %v", stats.HourlyCost, stats.LowerBound)
	}
}

// Case 17: EC2 has no capacity for one reservation, and another one of the same type and zone is used.
func TestAnotherReservationOfTheTypeAndZoneIsUsed(t *testing.T) {
	it := WithReservation(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-a", 2), "cr-b", 1)
	for i := range it.Offerings {
		if o := &it.Offerings[i]; o.ReservationID == "cr-a" {
			o.Available = false
		}
	}
	checkPlans(t, []planCase{{
		"the second reservation, and then other capacity",
		World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{it})}, Pods(2, "a", Requests("cpu", "1"))...),
		[]string{"general m.small in cr-b: a", "general m.small: a"},
	}})
}
