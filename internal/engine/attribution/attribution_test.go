package attribution_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const in = corev1.NodeSelectorOpIn

// types are two sizes. A small node costs $0.10/h and a large one $0.15/h, in each of two zones; spot costs half.
func types() []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for _, size := range []struct {
		name, cpu string
		price     float64
	}{{"small", "2", 0.10}, {"large", "4", 0.15}} {
		out = append(out, WithOfferings(Type(size.name, size.price, "cpu", size.cpu, "memory", "64Gi", "pods", "50"),
			Offering("z1", karpv1.CapacityTypeOnDemand, size.price), Offering("z2", karpv1.CapacityTypeOnDemand, size.price),
			Offering("z1", karpv1.CapacityTypeSpot, size.price/2), Offering("z2", karpv1.CapacityTypeSpot, size.price/2)))
	}
	return out
}

// withReservation puts one small instance into a capacity reservation, which is paid for already.
func withReservation(list []*catalog.InstanceType) []*catalog.InstanceType {
	WithReservation(list[0], "cr-1", 1)
	return list
}

// app is a pod of one core of a workload.
func app(name string, edit ...func(*corev1.Pod)) func(i int) *corev1.Pod {
	return func(i int) *corev1.Pod {
		return Pod(fmt.Sprintf("%s-%d", name, i), append([]func(*corev1.Pod){Labeled("app", name), Requests("cpu", "1")}, edit...)...)
	}
}

func times(n int, pod func(int) *corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		out = append(out, pod(i))
	}
	return out
}

func onDemandPool() snapshot.Pool {
	return Pool("general", types(), Require(karpv1.LabelCapacityType, in, karpv1.CapacityTypeOnDemand))
}

func anyPool() snapshot.Pool { return Pool("general", types()) }

func soft(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }

// Without the rule that is measured, four pods of one core need one large spot node for $0.075/h.
func TestCostsOfRules(t *testing.T) {
	onDemand := Selects(karpv1.LabelCapacityType, karpv1.CapacityTypeOnDemand)
	for _, c := range []struct {
		name  string
		world *snapshot.Snapshot
		want  string
	}{
		{"no rules", World([]snapshot.Pool{anyPool()}, times(4, app("web"))...), "gap 0.000"},
		{
			"host anti-affinity is in the bound",
			World([]snapshot.Pool{anyPool()}, times(2, app("web", Apart(Host, "web")))...),
			"host rules 0.050 (web 0.050), gap 0.000",
		},
		{
			"zone spread",
			World([]snapshot.Pool{anyPool()}, times(4, app("web", Spread(Zone, 1, "web")))...),
			"zone spread 0.025 (web 0.025), gap 0.025, by rules 0.025",
		},
		{
			"zone spread of one of two workloads",
			World([]snapshot.Pool{anyPool()}, append(times(2, app("web", Spread(Zone, 1, "web"))), times(1, app("db"))...)...),
			"zone spread 0.025 (web 0.025), gap 0.025, by rules 0.025",
		},
		{
			"two owners, each of which forces the second zone",
			World([]snapshot.Pool{anyPool()}, append(times(2, app("web", Spread(Zone, 1, "web"))), times(2, app("db", Spread(Zone, 1, "db")))...)...),
			"zone spread 0.025 (), gap 0.025, by rules 0.025",
		},
		{
			"a pod that requires on-demand among spot",
			World([]snapshot.Pool{anyPool()}, append(times(4, app("web")), times(4, app("db", onDemand))...)...),
			"on-demand only 0.075 (db 0.075), gap 0.000",
		},
		{
			"a pool of on-demand only",
			World([]snapshot.Pool{onDemandPool()}, times(4, app("web"))...),
			"on-demand only 0.075 (NodePool general 0.075), gap 0.000",
		},
		{
			"preferences",
			World([]snapshot.Pool{anyPool()}, times(2, app("web", Spread(Host, 1, "web", soft)))...),
			"preferences 0.050 (web 0.050), gap 0.050, by rules 0.050",
		},
		{
			"a preferred zone that costs nothing",
			World([]snapshot.Pool{anyPool()}, times(4, app("web", Prefers(1, Expr(Zone, in, "z2"))))...),
			"gap 0.000",
		},
		{
			"pods in two zones by selection",
			World([]snapshot.Pool{anyPool()}, append(times(2, app("web", Selects(Zone, "z1"))), times(2, app("db", Selects(Zone, "z2")))...)...),
			"zone selection 0.025 (db 0.025, web 0.025), gap 0.000",
		},
		{
			"required affinity of which one term becomes free",
			World([]snapshot.Pool{anyPool()}, times(4, app("web",
				Needs(Expr(karpv1.LabelCapacityType, in, karpv1.CapacityTypeOnDemand))))...),
			"on-demand only 0.075 (web 0.075), gap 0.000",
		},
		{
			"a pool that leaves a capacity reservation unused",
			World([]snapshot.Pool{Pool("general", withReservation(types()),
				Require(karpv1.LabelCapacityType, in, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot))}, times(2, app("web"))...),
			"reserved rules 0.050 (NodePool general 0.050), gap 0.050",
		},
		{
			"pods that no plan can schedule do not matter",
			World([]snapshot.Pool{anyPool()}, append(times(2, app("web", Apart(Host, "web"))), Pod("huge", Requests("cpu", "64")))...),
			"host rules 0.050 (web 0.050), gap 0.000",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := fmt.Sprint(c.world.Pods, c.world.Pools[0].NodePool)
			plan := schedule.Solve(c.world, schedule.Budget{})
			got := text(attribution.Attribute(c.world, &plan, attribution.Settings{Owner: owner}))
			if got != c.want {
				t.Errorf("the plan costs %.3f with bound %.3f, attributed as:\n%s\nwant:\n%s", plan.Stats.HourlyCost, plan.Stats.LowerBound, got, c.want)
			}
			if after := fmt.Sprint(c.world.Pods, c.world.Pools[0].NodePool); after != before {
				t.Error("the snapshot has changed")
			}
		})
	}
}

func owner(p *corev1.Pod) string { return p.Labels["app"] }

// text prints a result as "rule cost (owner cost, ...), gap cost, by rules cost".
func text(r attribution.Result) string {
	var parts []string
	for _, c := range r.Costs {
		var owners []string
		for _, o := range c.Owners {
			owners = append(owners, fmt.Sprintf("%s %.3f", o.Owner, o.Hourly))
		}
		parts = append(parts, fmt.Sprintf("%s %.3f (%s)", c.Rule, c.Hourly, strings.Join(owners, ", ")))
	}
	parts = append(parts, fmt.Sprintf("gap %.3f", r.Gap))
	if r.GapByRules > 0 {
		parts = append(parts, fmt.Sprintf("by rules %.3f", r.GapByRules))
	}
	return strings.Join(parts, ", ")
}

// The budget of steps bounds how many owners are measured; the rules themselves always are.
func TestStepsBoundTheOwners(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 4 {
		name := fmt.Sprintf("app%d", i)
		pods = append(pods, times(2, app(name, Apart(Host, name), Selects(Zone, []string{"z1", "z2"}[i%2])))...)
	}
	s := World([]snapshot.Pool{anyPool()}, pods...)
	plan := schedule.Solve(s, schedule.Budget{})
	host := func(steps int) attribution.Cost {
		r := attribution.Attribute(s, &plan, attribution.Settings{Owner: owner, OwnerSteps: steps})
		i := slices.IndexFunc(r.Costs, func(c attribution.Cost) bool { return c.Rule == attribution.ZoneSelection })
		if i < 0 {
			t.Fatalf("no cost of zone selection in %s", text(r))
		}
		return r.Costs[i]
	}
	if all, none := host(0), host(1); all.Unmeasured != 0 || none.Unmeasured != 4 || len(none.Owners) != 0 ||
		math.Abs(all.Hourly-none.Hourly) > 1e-9 {
		t.Errorf("without a bound %+v, with a bound of one step %+v", all, none)
	}
}
