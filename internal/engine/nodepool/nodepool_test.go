package nodepool_test

import (
	"math"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

const (
	zone   = corev1.LabelTopologyZone
	in     = corev1.NodeSelectorOpIn
	exists = corev1.NodeSelectorOpExists
)

// fixture is the models of a few pools, with what they count in.
type fixture struct {
	*nodepool.Models
	axes  resources.Axes
	slots reservation.Slots
	steps int
}

func newFixture(daemons []*nodepool.Daemon, pools ...snapshot.Pool) *fixture {
	f := &fixture{axes: resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0"))}
	for _, d := range daemons {
		d.Amounts = f.axes.Vec(d.Requests)
	}
	f.Models = nodepool.NewModels(nodepool.Config{
		Labels: World(pools).Labels, Axes: f.axes, NodeCost: 0.5, Daemons: daemons, Slots: &f.slots, Steps: &f.steps,
		LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, pools)
	f.slots.TakeInFlight(nil, "")
	return f
}

// types are two types in each zone: small for 1 $/h on demand and large for 2 $/h, spot for a third of it.
func types() []*catalog.InstanceType {
	return []*catalog.InstanceType{Type("large", 2, "cpu", "4", "memory", "8Gi"), Type("small", 1, "cpu", "2", "memory", "4Gi")}
}

// names are the types of candidates, in order.
func names(t *nodepool.Template, list []nodepool.Candidate) []string {
	var out []string
	for _, cand := range list {
		out = append(out, t.TypeOf(cand).Name)
	}
	return out
}

func set(reqs ...requirement.Requirement) requirement.Set { return requirement.NewSet(reqs...) }

func TestHeavierPoolsComeFirst(t *testing.T) {
	replicas := Pool("static", types())
	replicas.NodePool.Spec.Replicas = new(int64)
	f := newFixture(nil, Pool("a", types()), Pool("heavy", types(), Weight(5)), Pool("b", types()), replicas)
	var got []string
	for i, tmpl := range f.All() {
		got = append(got, tmpl.Pool().Name)
		if tmpl.Index() != i {
			t.Errorf("%s has index %d, want %d", tmpl.Pool().Name, tmpl.Index(), i)
		}
	}
	if !slices.Equal(got, []string{"heavy", "b", "a"}) {
		t.Errorf("order %v, want heavy, b, a; pools with replicas launch nothing for pods", got)
	}
}

func TestHiddenModelsLaunchNothing(t *testing.T) {
	f := newFixture(nil, Pool("a", types()))
	show := f.Hide()
	if len(f.All()) != 0 || f.TypeCount() != 0 {
		t.Error("hidden templates are listed")
	}
	show()
	if len(f.All()) != 1 || f.TypeCount() != 2 {
		t.Error("templates are not listed any more")
	}
}

func TestCandidatesAreCheapestFirst(t *testing.T) {
	f := newFixture(nil, Pool("a", types()))
	tmpl := f.All()[0]
	all := tmpl.Candidates(tmpl.Requirements())
	if got := names(tmpl, all.List()); !slices.Equal(got, []string{"small", "large"}) {
		t.Errorf("candidates %v, want small, large", got)
	}
	if price := all.PriceOf(all.List()[0]); math.Abs(price-1.0/3-0.5) > 1e-9 {
		t.Errorf("price %v, want that of the spot offering and of the node", price)
	}
	before := f.steps
	if again := tmpl.Candidates(tmpl.Requirements()); again != all || f.steps != before {
		t.Error("equal requirements made a second list")
	}
}

func TestNarrowAddsRequirements(t *testing.T) {
	f := newFixture(nil, Pool("a", types()))
	tmpl := f.All()[0]
	all := tmpl.Candidates(tmpl.Requirements())
	zonal := all.Narrow(f.Intern(set(requirement.In(zone, "z1"))))
	if value, single := zonal.Domain(zone); !single || value != "z1" {
		t.Errorf("zone %q, single: %t; want z1", value, single)
	}
	if zonal.Zone() == 0 || all.Zone() != 0 {
		t.Errorf("zone numbers %d and %d, want one for z1 and none for all", zonal.Zone(), all.Zone())
	}
	if again := zonal.Narrow(f.Intern(set(requirement.In(zone, "z1", "z2")))); again != zonal {
		t.Error("requirements that exclude nothing made another list")
	}
	for name, r := range map[string]requirement.Requirement{
		"another zone": requirement.In(zone, "z2"),
		"a host":       requirement.In(corev1.LabelHostname, "node-1"),
		"no host name": requirement.DoesNotExist(corev1.LabelHostname),
		"no such key":  requirement.Exists("team"),
	} {
		if got := zonal.Narrow(f.Intern(set(r))); got != nil {
			t.Errorf("%s: a new node in z1 can meet it", name)
		}
	}
	if zonal.NarrowBy(set(requirement.In(zone, "z2"))) != nil || zonal.NarrowBy(set(requirement.In(zone, "z1"))) != zonal {
		t.Error("NarrowBy differs from Narrow")
	}
	if all.Narrow(requirement.Interned{}) != all {
		t.Error("no requirements made another list")
	}
}

func TestClaimsDoNotStateLabelsThatNodesWillLack(t *testing.T) {
	f := newFixture(nil, Pool("a", types()))
	tmpl := f.All()[0]
	all := tmpl.Candidates(tmpl.Requirements())
	without := all.Narrow(f.Intern(set(requirement.DoesNotExist("team"), requirement.In(zone, "z1"))))
	reqs := without.ClaimRequirements()
	if reqs.Defines("team") || reqs.Defines(karpv1.LabelInitialized) || !reqs.Defines(zone) {
		t.Errorf("a claim requires %v, want the zone and no made-up label", reqs.Keys())
	}
}

func TestAdmit(t *testing.T) {
	f := newFixture(nil, Pool("a", types(), Require(zone, in, "z1", "z2")))
	tmpl := f.All()[0]
	none := f.Intern(requirement.Set{})
	if f.Admit(tmpl, f.Intern(set(requirement.In(zone, "z3"))), none) != nil {
		t.Error("a pod in another zone is admitted")
	}
	pod, volume := f.Intern(set(requirement.In(zone, "z2", "z3"))), f.Intern(set(requirement.In(zone, "z1", "z2")))
	l := f.Admit(tmpl, pod, volume)
	if value, single := l.Domain(zone); !single || value != "z2" {
		t.Errorf("zone %q, single: %t; want z2", value, single)
	}
	if n := countBits(f.OfferingsOf([]*nodepool.Candidates{l}), f.OfferingCount()); n != 4 {
		t.Errorf("%d offerings, want spot and on demand of each type in z2", n)
	}
}

func countBits(b resources.Bitset, n int) int {
	count := 0
	for i := range n {
		if b.Has(i) {
			count++
		}
	}
	return count
}

func TestLimits(t *testing.T) {
	f := newFixture(nil, Pool("a", types(), Limit("cpu", "5")))
	tmpl := f.All()[0]
	small, large := &tmpl.Types()[1], &tmpl.Types()[0]
	if !tmpl.HasLimits() || tmpl.LimitsExhausted() {
		t.Fatal("a pool with a limit has none, or has reached it")
	}
	none := tmpl.NoLimits()
	tmpl.Reserve(none, small.AgainstLimits())
	if tmpl.WithinLimits(large, none) {
		t.Error("4 of 3 CPUs left are within the limit")
	}
	if !tmpl.WithinLimits(large, small.AgainstLimits()) {
		t.Error("the node that has reserved 2 of 5 CPUs cannot become one of 4")
	}
	if use := tmpl.LimitUses(); len(use) != 1 || use[0].Name != corev1.ResourceCPU || use[0].Left != 3000 || use[0].Limit != 5000 {
		t.Errorf("use %+v, want 3 of 5 CPUs left", use)
	}
	if !tmpl.Unlimited().WithinLimits(large, none) || tmpl.WithinLimits(large, none) {
		t.Error("Unlimited does not lift the limit, or lifts it for others")
	}
	first := tmpl.Marked()
	tmpl.Mark()
	tmpl.TakeLargest([]*catalog.InstanceType{small.InstanceType})
	if tmpl.WithinLimits(small, none) {
		t.Error("2 of 1 CPU left are within the limit")
	}
	tmpl.Undo()
	if !tmpl.WithinLimits(small, none) || tmpl.WithinLimits(large, none) {
		t.Error("Undo did not return to the mark")
	}
	tmpl.Restore(first)
	if !tmpl.WithinLimits(large, none) {
		t.Error("Restore did not return to the earlier state")
	}
}

func TestLaunchesReserveLimitsForLargerTypes(t *testing.T) {
	f := newFixture(nil, Pool("a", types(), Limit("cpu", "5")))
	tmpl := f.All()[0]
	all := tmpl.Candidates(tmpl.Requirements()).List()
	small := tmpl.TypeOf(all[0]).AgainstLimits()
	tmpl.Reserve(tmpl.NoLimits(), small)
	if got := tmpl.ReserveForAll(all, small); got[0] != 4000 {
		t.Errorf("the first launch has reserved %d, want that of the larger type", got[0])
	}
	if use := tmpl.LimitUses(); use[0].Left != 1000 {
		t.Errorf("%d left, want 1 CPU", use[0].Left)
	}
}

func TestFitting(t *testing.T) {
	reserved := WithReservation(Type("small", 1, "cpu", "2", "memory", "4Gi"), "cr", 1)
	f := newFixture(nil, Pool("a", []*catalog.InstanceType{reserved, Type("large", 2, "cpu", "4", "memory", "8Gi")}))
	tmpl := f.All()[0]
	q := nodepool.FitQuery{
		Candidates: tmpl.Candidates(tmpl.Requirements()), Total: f.axes.Vec(Resources("cpu", "1")), Reserved: tmpl.NoLimits(),
	}
	if got := names(tmpl, tmpl.Fitting(nil, q)); !slices.Equal(got, []string{"small", "large"}) {
		t.Errorf("outside of reservations: %v, want both types", got)
	}
	q.Reservation = 1
	if got := names(tmpl, tmpl.Fitting(nil, q)); !slices.Equal(got, []string{"small"}) {
		t.Errorf("in the reservation: %v, want the small type", got)
	}
	q.Reservation, q.Total = reservation.None, f.axes.Vec(Resources("cpu", "3"))
	if got := names(tmpl, tmpl.Fitting(nil, q)); !slices.Equal(got, []string{"large"}) {
		t.Errorf("three CPUs: %v, want the large type", got)
	}
}

func TestReservationsAreCandidatesOfTheirOwn(t *testing.T) {
	it := WithReservation(Type("small", 1, "cpu", "2"), "cr", 1)
	f := newFixture(nil, Pool("a", []*catalog.InstanceType{it}))
	tmpl := f.All()[0]
	l := tmpl.Candidates(tmpl.Requirements())
	if len(l.List()) != 2 || l.List()[0].Reservation != 1 || l.List()[0].Offering != -1 || l.List()[1].Reservation != reservation.None {
		t.Fatalf("candidates %+v, want the reservation first", l.List())
	}
	if l.PriceOf(l.List()[0]) >= l.PriceOf(l.List()[1]) {
		t.Error("the reservation costs as much as on demand")
	}
	if o := tmpl.Types()[0].OfferingOf(l.Requirements(), 1); o.ReservationID != "cr" {
		t.Errorf("the offering of the reservation is %+v", o)
	}
	if o := tmpl.Types()[0].OfferingOf(l.Requirements(), reservation.None); o.ReservationID != "" {
		t.Errorf("the offering outside is %+v", o)
	}
	if n := slices.Collect(tmpl.Types()[0].Reservations); !slices.Equal(n, []int{1}) {
		t.Errorf("reservations %v, want 1", n)
	}
}

func TestDaemonsTakeRoomAndPorts(t *testing.T) {
	agent := &nodepool.Daemon{
		Alternatives: []requirement.Set{set(requirement.In(zone, "z1"))}, Requests: Resources("cpu", "500m"),
		Ports: []resources.HostPort{{IP: "0.0.0.0", Port: 80, Protocol: corev1.ProtocolTCP}},
	}
	f := newFixture([]*nodepool.Daemon{agent}, Pool("a", []*catalog.InstanceType{Type("small", 1, "cpu", "2")}))
	tmpl := f.All()[0]
	cpu := f.axes.IndexOf(corev1.ResourceCPU)
	var rooms []int64
	for i := range tmpl.Types() {
		rooms = append(rooms, tmpl.Types()[i].Room()[cpu])
	}
	slices.Sort(rooms)
	if !slices.Equal(rooms, []int64{1500, 2000}) {
		t.Fatalf("rooms %v, want 1.5 CPUs with the daemon in z1 and 2 without", rooms)
	}
	if !tmpl.Holds(f.axes.Vec(Resources("cpu", "2"))) || tmpl.Holds(f.axes.Vec(Resources("cpu", "3"))) {
		t.Error("Holds is not about the largest room")
	}
	if !tmpl.DaemonsTake(agent.Ports[0]) {
		t.Error("the daemon's port is free on all nodes")
	}
	if tmpl.ConflictingGroups(nil, nil) != nil {
		t.Error("pods without ports conflict with daemons")
	}
	blocked := tmpl.ConflictingGroups(agent.Ports, nil)
	for i := range tmpl.Types() {
		ti := &tmpl.Types()[i]
		if with := ti.Room()[cpu] == 1500; ti.BlockedBy(blocked) != with {
			t.Errorf("a type with the daemon: %t; blocked: %t", with, !with)
		}
	}
	l := tmpl.Candidates(tmpl.Requirements())
	launch := tmpl.Launch(l.List())
	if len(launch.Types) != 1 || len(launch.Types[0].Offerings) != 2*len(Zones()) {
		t.Errorf("a launch names %d types, want one with the offerings of both variants", len(launch.Types))
	}
	if len(launch.Overhead) != 0 {
		t.Errorf("daemons take %v on whichever type is launched, want nothing: z2 has none", launch.Overhead)
	}
	if kept, reqs := tmpl.KeepUnambiguous(l.List()[:1], l.Requirements(), nodepool.FitQuery{}); len(kept) != 1 || len(reqs.Get(zone).Values()) == 0 {
		t.Errorf("a launch of one variant is not limited to its zones: %v", reqs)
	}
}

func TestEqualLaunchesShareTheirTypes(t *testing.T) {
	f := newFixture(nil, Pool("a", types()))
	tmpl := f.All()[0]
	l := tmpl.Candidates(tmpl.Requirements()).List()
	if a, b := tmpl.Launch(l), tmpl.Launch(slices.Clone(l)); &a.Types[0] != &b.Types[0] {
		t.Error("equal launches have lists of their own")
	}
}

func TestMinValues(t *testing.T) {
	f := newFixture(nil, Pool("a", types(), Require(corev1.LabelInstanceTypeStable, exists), MinValues(2)))
	tmpl := f.All()[0]
	l := tmpl.Candidates(tmpl.Requirements())
	if !l.HasMinValues() {
		t.Fatal("minValues is lost")
	}
	if missed, n := tmpl.MinValuesShortfall(l.Requirements(), l.List()); len(missed) > 0 || n != 2 {
		t.Errorf("missed %v, %d types needed; want both types to suffice", missed, n)
	}
	missed, _ := tmpl.MinValuesShortfall(l.Requirements(), l.List()[:1])
	if missed[corev1.LabelInstanceTypeStable] != 1 {
		t.Errorf("missed %v, want one value of two", missed)
	}
	if got, want := wording.Reason(rejection.Reason{Rule: nodepool.Shortfall(l.Requirements(), missed)}),
		"too few instance types are left to choose from: 1 values of node.kubernetes.io/instance-type instead of at least 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestUnusable(t *testing.T) {
	for _, c := range []struct {
		name       string
		pool       snapshot.Pool
		bestEffort bool
		want       rejection.Code
	}{
		{"usable", Pool("a", types()), false, ""},
		{"no types", Pool("a", nil), false, rejection.Offering},
		{"another architecture", Pool("a", types(), Require(corev1.LabelArchStable, in, "s390x")), false, rejection.Requirement},
		{"minValues", Pool("a", types(), Require(corev1.LabelInstanceTypeStable, exists), MinValues(5)), false, rejection.MinValues},
		{"minValues may be lowered", Pool("a", types(), Require(corev1.LabelInstanceTypeStable, exists), MinValues(5)), true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := newFixture(nil, c.pool).Unusable(c.bestEffort)
			if (c.want == "") != (len(got) == 0) || c.want != "" && got[0].Code != c.want {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
}

func TestReplacedPoolKeepsPlaceAndLimits(t *testing.T) {
	f := newFixture(nil, Pool("a", types(), Weight(2)), Pool("b", types(), Limit("cpu", "5"), Require(zone, in, "z1")))
	tmpl := f.All()[1]
	tmpl.Reserve(tmpl.NoLimits(), tmpl.Types()[0].AgainstLimits())
	changed := Pool("b", types(), Limit("cpu", "5"))
	out := tmpl.Replaced(&changed)
	if out.Index() != 1 || out.LimitUses()[0].Left != 1000 {
		t.Errorf("index %d, %+v left; want 1 and 1 CPU", out.Index(), out.LimitUses())
	}
	if got := out.Values(zone); !slices.Equal(got, Zones()) {
		t.Errorf("zones %v, want all", got)
	}
	if got := tmpl.Values(zone); !slices.Equal(got, []string{"z1"}) {
		t.Errorf("zones of the original %v, want z1", got)
	}
}

func TestLabelsThatSomeTypesLack(t *testing.T) {
	const gpu = "example.com/gpu"
	with, without := WithLabel(Type("with", 1, "cpu", "1"), gpu, "a100"), Type("without", 1, "cpu", "1")
	without.Requirements = without.Requirements.With(requirement.DoesNotExist(gpu))
	f := newFixture(nil, Pool("a", []*catalog.InstanceType{with, without}))
	tmpl := f.All()[0]
	if !tmpl.Lacks(gpu) || tmpl.Lacks(zone) {
		t.Error("want only the GPU label absent on some type")
	}
	if !tmpl.DefinesLabel(gpu) || tmpl.DefinesLabel("team") {
		t.Error("want only the GPU label defined by types")
	}
	f.Intern(set(requirement.DoesNotExist("team")))
	if !f.RequiresAbsent("team") || f.RequiresAbsent(gpu) {
		t.Error("want only the team label required absent")
	}
}

func TestDeviceViewsTellTypesWithDevicesApart(t *testing.T) {
	plain := Type("plain", 1, "cpu", "1")
	f := newFixture(nil, Pool("a", []*catalog.InstanceType{plain, Type("other", 1, "cpu", "1")}, Require(zone, in, "z1", "z2")))
	tmpl := f.All()[0]
	views := tmpl.Candidates(tmpl.Requirements()).DeviceViews([]string{zone})
	if len(views) != 2 {
		t.Fatalf("%d views, want one per zone", len(views))
	}
	for _, v := range views {
		if v.Typ != nil || len(v.Types) != 2 || v.Labels[zone] == "" {
			t.Errorf("view %+v, want both types in one zone", v)
		}
	}
}

// A zone in which a type is not sold is none of its domains, though the catalog has an unavailable offering there. A zone
// without capacity for the moment is one.
func TestZonesAreWhereTypesAreSold(t *testing.T) {
	list := types()
	for _, it := range list {
		it.Requirements = it.Requirements.With(requirement.In(zone, "z1", "z2"))
		for k := range it.Offerings {
			it.Offerings[k].Available = it.Offerings[k].Zone == "z1"
		}
	}
	if got := newFixture(nil, Pool("a", list)).All()[0].Values(zone); !slices.Equal(got, []string{"z1", "z2"}) {
		t.Errorf("zones %v, want z1 and z2", got)
	}
}

// What is remembered of one query does not answer another one: of another label, of pods that request more, or with another label that the
// nodes must have.
func TestDomainsAreThoseOfTheQuery(t *testing.T) {
	f := newFixture(nil, Pool("a", types()))
	all := f.All()[0].Candidates(f.All()[0].Requirements())
	size := corev1.LabelInstanceTypeStable
	for _, tc := range []struct {
		q    nodepool.DomainQuery
		want []string
	}{
		{nodepool.DomainQuery{Key: size}, []string{"large", "small"}},
		{nodepool.DomainQuery{Key: zone}, Zones()},
		{nodepool.DomainQuery{Key: size, Requests: f.axes.Vec(Resources("cpu", "3"))}, []string{"large"}},
		{nodepool.DomainQuery{Key: size, Requests: f.axes.Vec(Resources("cpu", "1"))}, []string{"large", "small"}},
		{nodepool.DomainQuery{Key: size, Requests: f.axes.Vec(Resources("cpu", "100"))}, nil},
		{nodepool.DomainQuery{Key: size, Present: []string{zone}}, []string{"large", "small"}},
		{nodepool.DomainQuery{Key: size, Present: []string{"example.com/none"}}, nil},
	} {
		for range 2 { // found, and remembered
			if got := all.Domains(tc.q); !slices.Equal(got, tc.want) {
				t.Errorf("%+v has the domains %v, want %v", tc.q, got, tc.want)
			}
		}
	}
}

func TestNodesWithoutALabelAreAmongTheOutcomes(t *testing.T) {
	it := WithReservation(Type("m", 1, "cpu", "2", "memory", "4Gi"), "r-1", 1)
	tpl := newFixture(nil, Pool("general", []*catalog.InstanceType{it})).All()[0]
	cands := tpl.Candidates(tpl.Requirements())
	for _, c := range []struct {
		name        string
		req         requirement.Requirement
		may, always bool
	}{
		{"in the reservation", requirement.In(ReservationID, "r-1"), true, false},
		{"in another", requirement.In(ReservationID, "r-2"), false, false},
		{"not in the reservation", requirement.NotIn(ReservationID, "r-1"), true, false},
		{"not in another", requirement.NotIn(ReservationID, "r-2"), true, true},
		{"in none", requirement.DoesNotExist(ReservationID), true, false},
		{"in any", requirement.Exists(ReservationID), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := requirement.Pod{Selector: set(c.req)}
			if may, always := cands.MaySatisfy(pod), cands.AllSatisfy(pod); may != c.may || always != c.always {
				t.Errorf("may %v, always %v, want %v and %v", may, always, c.may, c.always)
			}
		})
	}
}
