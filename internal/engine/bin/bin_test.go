package bin_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// fixture is the bins of one pool, for compiled pods.
type fixture struct {
	*bin.Set
	t       *testing.T
	pool    *nodepool.Template
	classes []*podclass.Class // of the pods, in their order
	pods    []*corev1.Pod
	slots   reservation.Slots
	steps   int
}

// newFixture has types small (2 CPUs for 1 $/h) and large (4 CPUs for 2 $/h), in three zones.
func newFixture(t *testing.T, pool snapshot.Pool, pods ...*corev1.Pod) *fixture {
	t.Helper()
	f := &fixture{t: t, pods: pods}
	s := World([]snapshot.Pool{pool}, pods...)
	axes, volumes := resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0")), volume.NewLimits(s, nil)
	registry := topology.NewRegistry(s, map[types.UID]bool{})
	models := nodepool.NewModels(nodepool.Config{
		Labels: s.Labels, Axes: axes, Slots: &f.slots, Steps: &f.steps, LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, s.Pools)
	f.slots.TakeInFlight(nil, s.Labels.ReservationID)
	f.pool = models.All()[0]
	registry.AddPool(f.pool.ForTopology(), false)
	compiler := podclass.NewCompiler(podclass.Config{
		Snapshot: s, Topology: registry, Volumes: volumes, RespectPreferences: true, Steps: &f.steps, Pools: models,
	})
	classifier := podclass.NewClassifier(false, &snapshot.Settings{})
	for _, pod := range pods {
		c, err := classifier.ClassOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		c.Measure(axes, volumes, make(resources.Vec, axes.Len()))
		if f.classes = append(f.classes, c); !c.IsRead() {
			compiler.Read(c.Constraints, pod)
			compiler.Compile(c.Constraints)
		}
	}
	registry.CountDeclared()
	registry.Index()
	for _, c := range f.classes {
		compiler.Find(c.Constraints)
	}
	f.Set = bin.NewSet(bin.Config{
		Axes: axes, Topology: registry, Volumes: volumes, Devices: devices.New(s), Slots: &f.slots,
		ReservationLabel: s.Labels.ReservationID, Steps: &f.steps,
	})
	return f
}

func twoTypes() []*catalog.InstanceType {
	return []*catalog.InstanceType{
		Type("small", 1, "cpu", "2", "memory", "64Gi", "pods", "10"), Type("large", 2, "cpu", "4", "memory", "64Gi", "pods", "10"),
	}
}

func cpu(name, amount string, edit ...func(*corev1.Pod)) *corev1.Pod {
	return Pod(name, append(edit, Labeled("app", name), Requests("cpu", amount))...)
}

// level is the last relaxation level of pod i.
func (f *fixture) level(i int) *podclass.Level {
	levels := f.classes[i].Levels()
	return levels[len(levels)-1]
}

// open opens a bin for pod i.
func (f *fixture) open(i int) *bin.Bin {
	f.t.Helper()
	b := f.Fresh(f.pool)
	g, why := f.Grow(b, f.classes[i], f.level(i), bin.AnyPrice)
	if why != nil {
		f.t.Fatalf("no bin can be opened for %s: %s", f.pods[i].Name, why.Code())
	}
	f.Open(bin.Opening{Bin: b, Growth: g, Class: f.classes[i], Level: f.level(i)}, f.pods[i])
	return b
}

// refuses is the rule by which the bin refuses pod i; empty if it takes it.
func (f *fixture) refuses(b *bin.Bin, i int, mode bin.Mode) rejection.Code {
	if _, why := f.Grow(b, f.classes[i], f.level(i), mode); why != nil {
		return why.Code()
	}
	return ""
}

// search is that for pod i.
func (f *fixture) search(i int, mode bin.Mode) bin.Search {
	return bin.Search{Class: f.classes[i], Level: f.level(i), Pod: f.pods[i], Mode: mode}
}

// contents are the names of the pods of each bin.
func (f *fixture) contents() string {
	var out []string
	for _, b := range f.All() {
		var names []string
		for _, pod := range b.Pods() {
			names = append(names, pod.Name)
		}
		out = append(out, strings.Join(names, " "))
	}
	return strings.Join(out, ", ")
}

func TestABinBecomesTheCheapestTypeThatHoldsItsPods(t *testing.T) {
	f := newFixture(t, Pool("general", twoTypes()), cpu("a", "1500m"), cpu("b", "1500m"), cpu("c", "1500m"))
	b := f.open(0)
	if f.Cost() != b.Cost() || b.Cost() == 0 {
		t.Fatalf("one bin for %v costs %v", b.Cost(), f.Cost())
	}
	before := b.Cost()
	g, why := f.Grow(b, f.classes[1], f.level(1), bin.BelowCeiling)
	if why != nil {
		t.Fatal(why.Code())
	}
	if name := f.pool.TypeOf(g.Cheapest()).Name; name != "large" || b.Rise(g) != before || b.Cost() != before {
		t.Errorf("two pods need type %s, which costs %v more; asking has changed the cost from %v to %v", name, b.Rise(g), before, b.Cost())
	}
	f.Add(b, f.classes[1], f.pods[1], g)
	if f.Cost() != 2*before || f.Last() != b {
		t.Errorf("the bins cost %v, want %v", f.Cost(), 2*before)
	}
	if code := f.refuses(b, 2, bin.AnyPrice); code != rejection.Resources {
		t.Errorf("a third pod is refused by rule %q", code)
	}
	for c, n := range b.Contents() {
		if n != 1 || c.Number() > 1 {
			t.Errorf("%d pods of class %d", n, c.Number())
		}
	}
}

func TestModesDecideWhatABinMayCost(t *testing.T) {
	f := newFixture(t, Pool("general", twoTypes()), cpu("a", "1500m"), cpu("b", "1500m"), cpu("c", "100m"))
	unsized := f.open(0)
	for _, c := range []struct {
		pod  int
		mode bin.Mode
		want rejection.Code
	}{
		{1, bin.BelowCeiling, ""},
		{1, bin.AtItsPrice, rejection.Resources},
		{2, bin.AtItsPrice, ""},
	} {
		if got := f.refuses(unsized, c.pod, c.mode); got != c.want {
			t.Errorf("pod %s in mode %d: %q, want %q", f.pods[c.pod].Name, c.mode, got, c.want)
		}
	}
	sized := f.Fresh(f.pool)
	g, _ := f.Grow(sized, f.classes[0], f.level(0), bin.AnyPrice)
	sized.Size(g.Cheapest())
	f.Open(bin.Opening{Bin: sized, Growth: g, Class: f.classes[0], Level: f.level(0)}, f.pods[0])
	if got := f.refuses(sized, 1, bin.BelowCeiling); got != rejection.Resources {
		t.Errorf("a bin that was sized for %v grows beyond: %q", sized.Target(), got)
	}
	g, why := f.Grow(sized, f.classes[1], f.level(1), bin.AnyPrice)
	if why != nil {
		t.Fatal(why.Code())
	}
	f.AddAbove(sized, f.search(1, bin.AnyPrice), g)
	if got := f.refuses(sized, 2, bin.BelowCeiling); got != "" {
		t.Errorf("a bin that was raised has no room below its new ceiling: %q", got)
	}
}

func TestRefusalsNameTheRule(t *testing.T) {
	port := HostPort("", 80, corev1.ProtocolTCP)
	f := newFixture(t, Pool("general", twoTypes(), PoolTaint("team", corev1.TaintEffectNoSchedule), Limit("cpu", "5")),
		cpu("first", "1", Tolerates("team"), port, Selects(Zone, "z1"), Apart(Host, "first"), Apart(Zone, "apart")),
		cpu("tainted", "1"), cpu("port", "1", Tolerates("team"), port), cpu("zone", "1", Tolerates("team"), Selects(Zone, "z2")),
		cpu("host", "1", Tolerates("team"), Apart(Host, "first")), cpu("huge", "5", Tolerates("team")),
		cpu("apart", "1", Tolerates("team"), Selects(Zone, "z1")), cpu("more", "3500m", Tolerates("team")))
	b := f.open(0)
	for i, want := range []rejection.Code{
		"", rejection.Taint, rejection.HostPort, rejection.Requirement, rejection.Topology, rejection.Resources, rejection.Topology,
	} {
		if got := f.refuses(b, i, bin.AnyPrice); i > 0 && got != want {
			t.Errorf("pod %s is refused by rule %q, want %q", f.pods[i].Name, got, want)
		}
	}
	if got := f.refuses(f.Fresh(f.pool), 7, bin.AnyPrice); got != rejection.Limits {
		t.Errorf("a node of 4 CPUs beside one of 2, with 5 in all: %q", got)
	}
	if got := f.refuses(f.Fresh(f.pool), 5, bin.Explained); got != rejection.Resources {
		t.Errorf("explained, a pod that no type holds is refused by rule %q", got)
	}
}

func TestPodsGoToTheFirstOrTheEmptiestBin(t *testing.T) {
	pods := []*corev1.Pod{
		cpu("a", "1", Apart(Host, "b")), cpu("b", "1"), cpu("c", "100m"), cpu("d", "100m"), cpu("e", "100m"), cpu("f", "100m"), cpu("g", "3900m"),
	}
	f := newFixture(t, Pool("general", twoTypes()), pods...)
	f.open(0)
	f.open(1)
	var first, fewest bin.List
	put := func(i int, with func(bin.Search, *bin.List) bool, l *bin.List) {
		if !with(f.search(i, bin.BelowCeiling), l) {
			t.Errorf("pod %s finds no bin", f.pods[i].Name)
		}
	}
	inFirst := func(q bin.Search, l *bin.List) bool { return f.Put(q, l, false) }
	put(2, inFirst, &first)
	put(3, inFirst, &first)
	put(4, f.PutWhereFewest, &fewest)
	put(5, f.PutWhereFewest, new(bin.List))
	if got := f.contents(); got != "a c d, b e f" {
		t.Errorf("the bins hold %s", got)
	}
	if f.Put(f.search(6, bin.BelowCeiling), new(bin.List), true) || f.PutAtAnyPrice(f.search(6, bin.AnyPrice), new(bin.List)) {
		t.Errorf("a pod that fits nowhere is in a bin: %s", f.contents())
	}
	f.Clear()
	if f.Len() != 0 || f.Cost() != 0 || f.Last() != nil {
		t.Errorf("%d bins for %v are left", f.Len(), f.Cost())
	}
}

// A bin that refuses since topology does not allow its zone takes the pod as soon as it does.
func TestBinsOfClosedDomainsAreAskedAgain(t *testing.T) {
	zonal := func(name, zone string) *corev1.Pod { return cpu(name, "100m", Selects(Zone, zone), Apart(Host, name)) }
	even := func(name string) *corev1.Pod {
		return Pod(name, Labeled("app", "even"), Requests("cpu", "100m"), Spread(Zone, 1, "even"))
	}
	f := newFixture(t, Pool("general", twoTypes()), zonal("a", "z1"), zonal("b", "z2"), zonal("c", "z3"), even("e1"), even("e2"), even("e3"), even("e4"))
	f.open(0)
	var l bin.List
	for i := 3; i <= 6; i++ {
		if !f.Put(f.search(i, bin.BelowCeiling), &l, false) {
			if i == 6 {
				t.Fatal("the spread is even, and a pod finds no bin")
			}
			f.open(i - 3) // another zone
			if !f.Put(f.search(i, bin.BelowCeiling), &l, false) {
				t.Fatalf("pod %s finds no bin", f.pods[i].Name)
			}
		}
	}
	if got := f.contents(); got != "a e1 e4, b e2, c e3" {
		t.Errorf("the bins hold %s", got)
	}
}

func TestOneLargerBinReplacesTwo(t *testing.T) {
	f := newFixture(t, Pool("general", twoTypes()), cpu("a", "1500m"), cpu("b", "1500m"))
	old := f.open(0)
	old.Size(old.Candidates().List()[0])
	fresh := f.Fresh(f.pool)
	g, _ := f.Grow(fresh, f.classes[1], f.level(1), bin.AnyPrice)
	into, grown := f.Enlarge(bin.Opening{Bin: fresh, Growth: g, Class: f.classes[1], Level: f.level(1)}, f.classes[1].Requests())
	if into != old || f.pool.TypeOf(grown.Cheapest()).Name != "large" {
		t.Fatalf("a bin of twice the price does not take the place of two")
	}
	if f.Len() != 1 {
		t.Errorf("there are %d bins", f.Len())
	}
	// The content of a node that would be full is not held by the larger type beside the old.
	target := old.Target()
	if into, _ := f.Enlarge(bin.Opening{Bin: fresh, Growth: g, Class: f.classes[1], Level: f.level(1)}, f.classes[1].Requests().Plus(resources.Vec{
		3000, 0, 0,
	})); into != nil || old.Target() != target {
		t.Errorf("the bin was enlarged for more than it holds, or has another target: %v", old.Target())
	}
}

func TestLaunchesNameAllTypesThatHoldTheBin(t *testing.T) {
	f := newFixture(t, Pool("general", twoTypes()), cpu("a", "1500m"), cpu("b", "1500m"))
	b := f.open(0)
	cover := f.Cover(b, f.classes[1], f.pods[1:])
	f.Replace(map[*bin.Bin]bool{b: true}, []*bin.Bin{cover})
	launches, failed := f.Launch()
	if len(launches) != 1 || len(failed) != 0 {
		t.Fatalf("%d launches and %d failures", len(launches), len(failed))
	}
	var names []string
	for _, it := range launches[0].InstanceTypes {
		names = append(names, it.Name)
	}
	q := launches[0].Requests[corev1.ResourceCPU]
	if fmt.Sprint(names) != "[small large]" || launches[0].Pods[0].Name != "b" || q.String() != "1500m" {
		t.Errorf("the launch names %v for %s, which requests %s", names, launches[0].Pods[0].Name, q.String())
	}
}

// decides reports whether a domain is chosen for a view.
func (f *fixture) decides(v topology.View) bool {
	decided, _ := f.Decide(v)
	return decided
}

// commits reports whether a bin is narrowed for waiting pods of these groups.
func (f *fixture) commits(waiting map[*topology.Group]bool) bool {
	changed, _ := f.Commit(waiting)
	return changed
}

// A node for a pod without a zone may come up in any. Pods that follow it wait until its zone is chosen.
func TestTheCheapestDomainIsDecidedForPodsThatFollow(t *testing.T) {
	small := Type("small", 1, "cpu", "2", "memory", "64Gi", "pods", "10")
	for i := range small.Offerings {
		if o := &small.Offerings[i]; o.Zone == "z2" {
			o.Price /= 2
		}
	}
	f := newFixture(t, Pool("general", []*catalog.InstanceType{small}), cpu("leader", "100m"), cpu("follower", "2", Near(Zone, "leader")))
	b := f.open(0)
	views := f.classes[1].Views(f.level(1))
	if f.refuses(f.Fresh(f.pool), 1, bin.AnyPrice) == "" {
		t.Fatal("the follower has a zone before the leader has")
	}
	if len(views) != 1 || !f.decides(views[0]) {
		t.Fatal("no domain was decided")
	}
	if zone, _ := b.Candidates().Domain(Zone); zone != "z2" {
		t.Errorf("the zone is %q, and z2 is the cheapest", zone)
	}
	if code := f.refuses(f.Fresh(f.pool), 1, bin.AnyPrice); code != "" {
		t.Errorf("the follower is refused by rule %q", code)
	}
	if f.decides(views[0]) {
		t.Error("a domain was decided twice")
	}
}

// A bin with types that exist in one zone only is there, whatever its requirements allow.
func TestBinsAreCommittedToWhereTheirTypesAre(t *testing.T) {
	large := WithOfferings(Type("large", 2, "cpu", "4", "memory", "64Gi", "pods", "10"), Offering("z3", "on-demand", 2))
	small := Type("small", 1, "cpu", "2", "memory", "64Gi", "pods", "10")
	f := newFixture(t, Pool("general", []*catalog.InstanceType{small, large}), cpu("leader", "3"), cpu("follower", "1", Near(Zone, "leader")))
	b := f.open(0)
	waiting := map[*topology.Group]bool{}
	for _, g := range f.level(1).Groups() {
		waiting[g] = true
	}
	if f.commits(map[*topology.Group]bool{}) {
		t.Error("a bin is committed that no pod waits for")
	}
	if !f.commits(waiting) {
		t.Fatal("no bin was committed")
	}
	if zone, _ := b.Candidates().Domain(Zone); zone != "z3" {
		t.Errorf("the zone is %q", zone)
	}
}
