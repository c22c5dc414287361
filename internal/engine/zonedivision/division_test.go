package zonedivision_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
	"github.com/dovetail-k8s/dovetail/internal/engine/zonedivision"
)

// fixture is the problem of dividing pods over z1, z2 and z3, where a pod with one CPU costs as much as prices state.
type fixture struct {
	zonedivision.Problem
	pods []*podclass.Class // of each pod
}

func newFixture(t *testing.T, prices [3]float64, pods ...*corev1.Pod) *fixture {
	t.Helper()
	it := Type("only", 1, "cpu", "4", "memory", "64Gi", "pods", "50")
	var offerings []catalog.Offering
	for i, zone := range Zones() {
		offerings = append(offerings, Offering(zone, "on-demand", 4*prices[i]))
	}
	s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{WithOfferings(it, offerings...)})}, pods...)
	steps, slots := 0, &reservation.Slots{}
	axes, volumes := resources.NewAxes(Resources("cpu", "0", "memory", "0", "pods", "0")), volume.NewLimits(s, nil)
	registry := topology.NewRegistry(s, map[types.UID]bool{})
	models := nodepool.NewModels(nodepool.Config{
		Labels: s.Labels, Axes: axes, Slots: slots, Steps: &steps, LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, s.Pools)
	slots.TakeInFlight(nil, "")
	registry.AddPool(models.All()[0].ForTopology(), false)
	f := &fixture{Problem: zonedivision.Problem{
		LeastKept: func(*podclass.Constraints) int { return 0 }, Pools: models, SimilarCost: 1.01,
		Candidates: func(k *podclass.Constraints) []*nodepool.Candidates {
			t := models.All()[0]
			if l := models.Admit(t, k.Levels()[0].InternedStrict(), k.Volumes()[0]); l != nil {
				return []*nodepool.Candidates{l}
			}
			return nil
		},
	}}
	compiler, classifier := podclass.NewCompiler(podclass.Config{
		Snapshot: s, Topology: registry, Volumes: volumes, RespectPreferences: true, Steps: &steps, Pools: models,
	}), podclass.NewClassifier(false, &snapshot.Settings{})
	for _, pod := range pods {
		c, err := classifier.ClassOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		if f.pods = append(f.pods, c); c.Number() < len(f.Classes) {
			continue
		}
		c.Measure(axes, volumes, make(resources.Vec, axes.Len()))
		if f.Classes = append(f.Classes, c); !c.IsRead() {
			compiler.Read(c.Constraints, pod)
			compiler.Compile(c.Constraints)
		}
	}
	registry.CountDeclared()
	registry.Index()
	problem := price.Problem{Pools: models, Axes: axes.Len(), Free: make([]float64, axes.Len())}
	for i, c := range f.Classes {
		compiler.Find(c.Constraints)
		problem.Usable = append(problem.Usable, f.Candidates(c.Constraints))
		problem.Pods = append(problem.Pods, price.Pods{Requests: c.Requests(), Count: 1, Usable: i})
	}
	f.Market = price.NewMarket(problem)
	return f
}

// perZone returns how many pods each zone gets; "" is for those that stay together. Pods must run in the zone that they get.
func (f *fixture) perZone(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	d := zonedivision.New(f.Problem)
	if d == nil {
		return map[string]int{"": len(f.pods)}
	}
	zones, divided := d.Assign(f.pods)
	for i, zone := range zones {
		if zone < 0 {
			out[""]++
			continue
		}
		divided--
		name, one := d.In(f.pods[i], zone).Levels()[0].Full().Get(Zone).Single()
		if !one {
			t.Errorf("the pods of a zone do not require it")
		}
		out[name]++
	}
	if divided != 0 {
		t.Errorf("the number of divided pods is wrong by %d", divided)
	}
	return out
}

func spread(n int, app string, edit ...func(*corev1.Pod)) []*corev1.Pod {
	return Pods(n, app, append([]func(*corev1.Pod){Labeled("app", app), Requests("cpu", "1", "memory", "1Gi")}, edit...)...)
}

func TestPodsAreDividedByPriceWithinMaxSkew(t *testing.T) {
	other := func(p *corev1.Pod) { p.Labels["app"] = "web" } // counted by the group of web, which does not spread it
	for _, c := range []struct {
		name   string
		prices [3]float64
		pods   []*corev1.Pod
		want   map[string]int
	}{
		{"equal prices", [3]float64{1, 1, 1}, spread(7, "web", Spread(Zone, 5, "web")), map[string]int{"z1": 3, "z2": 2, "z3": 2}},
		{"nearly equal prices", [3]float64{1.009, 1, 1}, spread(7, "web", Spread(Zone, 5, "web")), map[string]int{"z1": 3, "z2": 2, "z3": 2}},
		{"the skew binds", [3]float64{1.2, 1, 1.1}, spread(8, "web", Spread(Zone, 1, "web")), map[string]int{"z1": 2, "z2": 3, "z3": 3}},
		{"the cheapest takes what the skew allows", [3]float64{1.2, 1, 1.1}, spread(3, "web", Spread(Zone, 3, "web")), map[string]int{"z2": 3}},
		{"one pod", [3]float64{1, 1, 1}, spread(1, "web", Spread(Zone, 1, "web")), map[string]int{"": 1}},
		{"no spread", [3]float64{1, 1, 1}, spread(5, "web"), map[string]int{"": 5}},
		{
			"pods that count and are not spread",
			[3]float64{1, 1, 1},
			append(spread(4, "web", Spread(Zone, 1, "web")), spread(2, "other", other)...),
			map[string]int{"": 6},
		},
		{
			"another rule on zones",
			[3]float64{1, 1, 1},
			spread(4, "web", Spread(Zone, 1, "web"), Near(Zone, "web")),
			map[string]int{"": 4},
		},
		{
			"a spread over hosts is no reason",
			[3]float64{1, 1, 1},
			spread(6, "web", Spread(Zone, 1, "web"), Spread(Host, 1, "web")),
			map[string]int{"z1": 2, "z2": 2, "z3": 2},
		},
		{
			"a spread over other domains, with which no order of binding need lead to the division",
			[3]float64{1, 1, 1},
			spread(4, "web", Spread(Zone, 1, "web"), Spread(Arch, 2, "web")),
			map[string]int{"": 4},
		},
		{
			"a spread over other domains that may be given up",
			[3]float64{1, 1, 1},
			spread(6, "web", Spread(Zone, 1, "web"), Spread(Capacity, 1, "web", func(c *corev1.TopologySpreadConstraint) {
				c.WhenUnsatisfiable = corev1.ScheduleAnyway
			})),
			map[string]int{"z1": 2, "z2": 2, "z3": 2},
		},
		{
			"two groups with two prices",
			[3]float64{1, 1.5, 2},
			append(spread(4, "web", Spread(Zone, 4, "web")), spread(3, "api", Spread(Zone, 1, "api"))...),
			map[string]int{"z1": 5, "z2": 1, "z3": 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.prices, c.pods...)
			if diff := cmp.Diff(c.want, f.perZone(t)); diff != "" {
				t.Errorf("pods per zone (-want +got): %s", diff)
			}
		})
	}
}

func TestWholeGroupsAreNotDivided(t *testing.T) {
	f := newFixture(t, [3]float64{1, 1, 1}, append(spread(3, "web", Spread(Zone, 1, "web")), spread(3, "api", Spread(Zone, 1, "api"))...)...)
	f.Whole = map[*topology.Group]bool{f.pods[0].Levels()[0].Groups()[0]: true}
	if diff := cmp.Diff(map[string]int{"": 3, "z1": 1, "z2": 1, "z3": 1}, f.perZone(t)); diff != "" {
		t.Errorf("pods per zone (-want +got): %s", diff)
	}
}

// A preference does not count from the level on that gives it up.
func TestPreferencesThatDoNotCountAreNotDivided(t *testing.T) {
	soft := func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	f := newFixture(t, [3]float64{1, 1, 1}, spread(6, "web", Spread(Zone, 1, "web", soft))...)
	if diff := cmp.Diff(map[string]int{"z1": 2, "z2": 2, "z3": 2}, f.perZone(t)); diff != "" {
		t.Errorf("respected (-want +got): %s", diff)
	}
	f.LeastKept = (*podclass.Constraints).Bare
	if diff := cmp.Diff(map[string]int{"": 6}, f.perZone(t)); diff != "" {
		t.Errorf("ignored (-want +got): %s", diff)
	}
}

// Pods with a zone of their own selection leave the others within the skew of what is left.
func TestPodsGoWhereTheyCanRun(t *testing.T) {
	f := newFixture(t, [3]float64{1, 1, 1}, spread(4, "web", Spread(Zone, 2, "web"),
		Needs(Expr(Zone, corev1.NodeSelectorOpIn, "z1", "z3")))...)
	if diff := cmp.Diff(map[string]int{"z1": 2, "z3": 2}, f.perZone(t)); diff != "" {
		t.Errorf("pods per zone (-want +got): %s", diff)
	}
}
