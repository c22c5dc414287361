package price_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// fixture is the models of a few pools on demand, with what they count in.
type fixture struct {
	*nodepool.Models
	axes  resources.Axes
	slots reservation.Slots
	steps int
}

func newFixture(pools ...snapshot.Pool) *fixture {
	f := &fixture{axes: resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0"))}
	f.Models = nodepool.NewModels(nodepool.Config{
		Labels: World(pools).Labels, Axes: f.axes, Slots: &f.slots, Steps: &f.steps,
		LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, pools)
	f.slots.TakeInFlight(nil, "")
	return f
}

func onDemand(name string, weight int32, list ...*catalog.InstanceType) snapshot.Pool {
	return Pool(name, list, Weight(weight), Require(Capacity, corev1.NodeSelectorOpIn, "on-demand"))
}

// everywhere are the candidates of pods without requirements.
func (f *fixture) everywhere() []*nodepool.Candidates {
	var out []*nodepool.Candidates
	for _, t := range f.All() {
		out = append(out, t.Candidates(t.Requirements()))
	}
	return out
}

// problem prices pods without requirements.
func (f *fixture) problem(pods ...price.Pods) price.Problem {
	return price.Problem{
		Pools: f.Models, Axes: f.axes.Len(), Pods: pods, Usable: [][]*nodepool.Candidates{f.everywhere()},
		Free: make([]float64, f.axes.Len()),
	}
}

func (f *fixture) pods(n int, cpu, memory string) price.Pods {
	return price.Pods{Requests: f.axes.Vec(Resources("cpu", cpu, "memory", memory, "pods", "1")), Count: n}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.005*want+1e-9 { // the linear program stops so close to its optimum
		t.Errorf("%s is %.4f, want %.4f", what, got, want)
	}
}

func TestPodsShareThePriceOfTheirNode(t *testing.T) {
	f := newFixture(onDemand("general", 1, Type("large", 0.40, "cpu", "4", "memory", "64Gi"), Type("small", 0.15, "cpu", "1", "memory", "64Gi")))
	m := price.NewMarket(f.problem(f.pods(8, "1", "1Gi"), f.pods(2, "8", "1Gi"), f.pods(0, "1", "1Gi")))
	near(t, "a quarter of the large type", m.Value(m.Number(0)), 0.10)
	near(t, "all pods together", m.Total(), 0.80)
	if v := m.Value(m.Number(1)); v != 0 {
		t.Errorf("a pod that no type holds is worth %v", v)
	}
	if n := m.Number(2); n != -1 || m.Value(n) != 0 {
		t.Errorf("pods without any have number %d", n)
	}
	requests := f.axes.Vec(Resources("cpu", "2", "memory", "1Gi", "pods", "1"))
	near(t, "half of a large node", m.LeastCost(requests, f.everywhere()), 0.20)
}

func TestMarketWithoutOfferingsHasNoProgram(t *testing.T) {
	f := newFixture(onDemand("general", 1))
	p := f.problem(f.pods(1, "1", "1Gi"))
	m := price.NewMarket(p)
	if m.Program() != nil || m.Number(0) != -1 || m.Total() != 0 {
		t.Errorf("program %v, number %d, total %v", m.Program(), m.Number(0), m.Total())
	}
	b := price.NewBound(m, p.Free, &f.slots)
	if got := b.Of(price.Plan{Dearest: 0}); got != 0 {
		t.Errorf("the bound is %v", got)
	}
	if got := b.WithRules(&price.RuledPlan{Cost: 1}, 0.5, 1); got != 0.5 {
		t.Errorf("rules raise the bound to %v", got)
	}
}

// A heavier pool may cost up to a tenth more before pods are better off waiting for nodes of another.
func TestDearerInHeaviestPool(t *testing.T) {
	for _, c := range []struct {
		heavy float64
		want  bool
	}{{0.10, false}, {0.105, false}, {0.12, true}} {
		f := newFixture(onDemand("heavy", 10, Type("a", c.heavy, "cpu", "2", "memory", "8Gi")),
			onDemand("light", 1, Type("b", 0.10, "cpu", "2", "memory", "8Gi")))
		m := price.NewMarket(f.problem(f.pods(2, "1", "1Gi")))
		if got := m.DearerInHeaviestPool(m.Number(0)); got != c.want {
			t.Errorf("at $%v/h instead of 0.10: %v", c.heavy, got)
		}
	}
}

// Room that is paid for lowers the bound by what the best pods for it are worth.
func TestBoundLessRoomThatIsPaidFor(t *testing.T) {
	list := []*catalog.InstanceType{Type("large", 0.40, "cpu", "4", "memory", "64Gi")}
	f := newFixture(onDemand("general", 1, list...))
	p := f.problem(f.pods(8, "1", "1Gi"))
	m := price.NewMarket(p)
	near(t, "without nodes", price.NewBound(m, p.Free, &f.slots).Of(price.Plan{Value: m.Total(), Dearest: -1}), 0.80)
	near(t, "of one pod, a whole node", price.NewBound(m, p.Free, &f.slots).Of(price.Plan{Value: m.Value(0), Dearest: 0}), 0.40)

	p.Free = []float64{}
	for _, x := range f.axes.Vec(Resources("cpu", "4", "memory", "64Gi", "pods", "110")) {
		p.Free = append(p.Free, float64(x))
	}
	m = price.NewMarket(p)
	near(t, "with room for half of them", price.NewBound(m, p.Free, &f.slots).Of(price.Plan{Value: m.Total(), Dearest: -1}), 0.40)

	f = newFixture(Pool("general", []*catalog.InstanceType{WithReservation(list[0], "cr-1", 1)}))
	p = f.problem(f.pods(8, "1", "1Gi"))
	m = price.NewMarket(p)
	if got := price.NewBound(m, p.Free, &f.slots).Of(price.Plan{Value: m.Total(), Dearest: 0}); got > m.Total()/2*1.005 || got <= 0 {
		t.Errorf("with a reserved node for half of the pods: %v of %v", got, m.Total())
	}
}

// scheduled are n pods like this one, all scheduled, with the constraints that they have.
func (f *fixture) scheduled(t *testing.T, n int, pod *corev1.Pod, nodes ...*topology.Node) price.Scheduled {
	t.Helper()
	s := World(nil, pod)
	r := topology.NewRegistry(s, map[types.UID]bool{pod.UID: true})
	for _, node := range nodes {
		r.AddNode(node)
	}
	for _, tmpl := range f.All() {
		r.AddPool(topology.Pool{Labels: tmpl}, false)
	}
	selection, err := s.Labels.FromPod(&pod.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups := r.Apart(topology.AntiAffinity, pod)
	for i := range pod.Spec.TopologySpreadConstraints {
		groups = append(groups, r.Spread(topology.SpreadPod{Pod: pod, Node: selection}, &pod.Spec.TopologySpreadConstraints[i]))
	}
	r.CountDeclared()
	r.Index()
	out := price.Scheduled{Count: n, Requests: f.axes.Vec(snapshot.Requests(pod))}
	out.Matches, _ = r.Find(pod)
	for _, g := range groups {
		out.Views = append(out.Views, topology.NewView(g, pod, requirement.Set{}, &selection))
	}
	return out
}

// bound is the bound on a plan of six pods with one core each on three nodes, which costs more than any rule proves.
func (f *fixture) bound(t *testing.T, pod *corev1.Pod, existing ...price.Node) float64 {
	t.Helper()
	p := f.problem(f.pods(6, "1", "1Gi"))
	nodes := make([]*topology.Node, 0, len(existing))
	for _, n := range existing {
		nodes = append(nodes, n.Node)
		for axis, x := range n.Free {
			p.Free[axis] += float64(x)
		}
	}
	m := price.NewMarket(p)
	b := price.NewBound(m, p.Free, &f.slots)
	plan := price.RuledPlan{
		Plan: price.Plan{Value: m.Total(), Dearest: -1}, Cost: 100, Nodes: 3, Existing: existing,
		Scheduled: []price.Scheduled{f.scheduled(t, 6, pod, nodes...)},
	}
	first := b.WithRules(&plan, b.Of(plan.Plan), 1.01)
	if again := b.WithRules(&plan, b.Of(plan.Plan), 1.01); again != first {
		t.Errorf("%v, and for the same pods %v", first, again)
	}
	return first
}

func TestRulesRaiseTheBound(t *testing.T) {
	web := func(edit ...func(*corev1.Pod)) *corev1.Pod {
		return Pod("web", append(edit, Labeled("app", "web"), Requests("cpu", "1", "memory", "1Gi"))...)
	}
	large, small := Type("large", 0.30, "cpu", "6", "memory", "64Gi"), Type("small", 0.10, "cpu", "1", "memory", "64Gi")
	f := newFixture(onDemand("general", 1, large, small))
	near(t, "six pods of any kind", f.bound(t, web()), 0.30)
	near(t, "six pods apart", f.bound(t, web(Apart(Host, "web"))), 0.60)
	near(t, "six pods, two on a node", f.bound(t, web(Spread(Host, 2, "web"))), 0.60)
	near(t, "apart from others", f.bound(t, web(Apart(Host, "db"))), 0.30)

	node := price.Node{
		Node: &topology.Node{Labels: requirement.NewSet(requirement.In(Host, "old"), requirement.In(Zone, "z1"))},
		Free: f.axes.Vec(Resources("cpu", "1", "memory", "1Gi", "pods", "1")),
	}
	near(t, "six pods apart, of which an existing node takes one", f.bound(t, web(Apart(Host, "web")), node), 0.50)

	dear := WithOfferings(Type("zonal", 0, "cpu", "6", "memory", "64Gi"), Offering("z1", "on-demand", 0.30), Offering("z2", "on-demand", 0.60))
	f = newFixture(onDemand("general", 1, dear))
	near(t, "six pods in any zone", f.bound(t, web()), 0.30)
	near(t, "three pods in the zone that costs twice as much", f.bound(t, web(Spread(Zone, 1, "web"))), 0.45)
}

func TestRules(t *testing.T) {
	f := newFixture(onDemand("general", 1, Types()...))
	for _, c := range []struct {
		name string
		edit func(*corev1.Pod)
		want bool
	}{
		{"anti-affinity on hosts", Apart(Host, "web"), true},
		{"spread over hosts", Spread(Host, 1, "web"), true},
		{"spread over zones", Spread(Zone, 1, "web"), true},
		{"anti-affinity on zones", Apart(Zone, "web"), false},
	} {
		s := f.scheduled(t, 1, Pod("web", Labeled("app", "web"), c.edit))
		if got := price.Rules(s.Views[0].Group()); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
