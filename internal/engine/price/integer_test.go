package price_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// tiny is a few pods, some of which can use only some of the pools.
type tiny struct {
	*fixture
	pods  []resources.Vec
	pools []int // by pod: the pool that it needs; -1 for any
	free  []resources.Vec
}

// newTiny makes up to six pods, up to five types in each of two pools, and up to two existing nodes.
func newTiny(random *rand.Rand) *tiny {
	var pools [2][]*catalog.InstanceType
	for i := range pools {
		for k := range 1 + random.IntN(5) {
			cpu, memory := 1+random.IntN(8), 1+random.IntN(16)
			cost := math.Round(1000*(0.03*float64(cpu)+0.005*float64(memory))*(0.7+0.6*random.Float64())) / 1000
			pools[i] = append(pools[i], Type(fmt.Sprintf("t%d%d", i, k), cost, "cpu", fmt.Sprint(cpu), "memory", fmt.Sprint(memory, "Gi"),
				"pods", fmt.Sprint(1+random.IntN(6))))
		}
	}
	w := &tiny{fixture: newFixture(onDemand("a", 1, pools[0]...), onDemand("b", 1, pools[1]...))}
	for range 1 + random.IntN(6) {
		request := Resources("cpu", fmt.Sprintf("%dm", 100+random.IntN(4000)), "memory", fmt.Sprintf("%dMi", 100+random.IntN(8000)), "pods", "1")
		w.pods = append(w.pods, w.axes.Vec(request))
		w.pools = append(w.pools, random.IntN(3)-1)
	}
	for range random.IntN(3) {
		cpu, memory := fmt.Sprintf("%dm", random.IntN(3000)), fmt.Sprintf("%dMi", random.IntN(6000))
		w.free = append(w.free, w.axes.Vec(Resources("cpu", cpu, "memory", memory, "pods", "2")))
	}
	return w
}

// optimum is the least cost of nodes for all pods, by trying each of their partitions; +Inf if there is none.
func (w *tiny) optimum() float64 {
	best := math.Inf(1)
	var groups [][]int
	var place func(i int)
	place = func(i int) {
		if i == len(w.pods) {
			total := 0.0
			for g, group := range groups {
				if g >= len(w.free) {
					total += w.cheapest(group)
				}
			}
			best = min(best, total)
			return
		}
		for g := range groups {
			groups[g] = append(groups[g], i)
			if g >= len(w.free) || w.sum(groups[g]).Fits(w.free[g]) {
				place(i + 1)
			}
			groups[g] = groups[g][:len(groups[g])-1]
		}
		groups = append(groups, []int{i})
		place(i + 1)
		groups = groups[:len(groups)-1]
	}
	for range w.free {
		groups = append(groups, nil)
	}
	place(0)
	return best
}

func (w *tiny) sum(group []int) resources.Vec {
	out := make(resources.Vec, w.axes.Len())
	for _, i := range group {
		out = out.Plus(w.pods[i])
	}
	return out
}

// cheapest is the price of the cheapest node that holds the pods; 0 for none.
func (w *tiny) cheapest(group []int) float64 {
	if len(group) == 0 {
		return 0
	}
	best, sum := math.Inf(1), w.sum(group)
	for n, t := range w.All() {
		for i := range t.Types() {
			ti := &t.Types()[i]
			fits := sum.Fits(ti.Room())
			for _, pod := range group {
				fits = fits && (w.pools[pod] < 0 || w.pools[pod] == n)
			}
			if fits {
				best = min(best, ti.Offerings[0].Price)
			}
		}
	}
	return best
}

// bounds returns the bound of the linear program for a plan of all pods at the cost, and what whole nodes raise it to.
func (w *tiny) bounds(cost float64) (linear, whole float64) {
	all := w.everywhere()
	p := price.Problem{
		Pools: w.Models, Axes: w.axes.Len(), Usable: [][]*nodepool.Candidates{all, all[:1], all[1:]}, Free: make([]float64, w.axes.Len()),
	}
	plan := &price.RuledPlan{Cost: cost, Nodes: 1}
	for i, pod := range w.pods {
		p.Pods = append(p.Pods, price.Pods{Requests: pod, Count: 1, Usable: w.pools[i] + 1})
		plan.Scheduled = append(plan.Scheduled, price.Scheduled{Pods: i, Count: 1, Requests: pod})
	}
	for _, free := range w.free {
		plan.Existing = append(plan.Existing, price.Node{Free: free})
		for axis, r := range free {
			p.Free[axis] += float64(r)
		}
	}
	m := price.NewMarket(p)
	for i := range plan.Scheduled {
		plan.Scheduled[i].Value = m.Value(m.Number(i))
	}
	b := price.NewBound(m, p.Free, &w.slots)
	linear = b.Of(price.Plan{Value: m.Total(), Dearest: -1})
	return linear, b.Integer(plan, linear)
}

// No bound is above the cost of the best plan, which exhaustive search finds. Without whole nodes, few of these bounds prove the best plan.
func TestWholeNodesAreBoundedByTheBestPlan(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 38))
	worlds, byParts, byWhole := 0, 0, 0
	for n := range 5000 {
		w := newTiny(random)
		best := w.optimum()
		if math.IsInf(best, 1) || best == 0 {
			continue
		}
		worlds++
		// What an expensive plan costs must not raise the bound.
		for _, cost := range []float64{best, 1.5 * best, 10 * best} {
			linear, whole := w.bounds(cost)
			if whole > best*(1+1e-9) || whole < linear {
				t.Fatalf("world %d: bound %v, by parts of nodes %v; the best plan costs %v", n, whole, linear, best)
			}
			if cost == best {
				byParts += proves(linear, best)
				byWhole += proves(whole, best)
			}
		}
	}
	t.Logf("%d worlds: parts of nodes prove the best plan in %d, whole nodes in %d", worlds, byParts, byWhole)
	if worlds < 2000 || byWhole < 2*worlds/5 {
		t.Errorf("of %d worlds, the bound proves the best plan in %d", worlds, byWhole)
	}
}

func proves(bound, best float64) int {
	if bound >= best*(1-1e-6) {
		return 1
	}
	return 0
}

// A deployment that scales up: the cheapest nodes for equal pods are found, and proven.
func TestEqualPodsAreProven(t *testing.T) {
	f := newFixture(onDemand("general", 1,
		Type("small", 0.05, "cpu", "1", "memory", "64Gi"), Type("large", 0.15, "cpu", "4", "memory", "64Gi"),
		Type("huge", 0.5, "cpu", "16", "memory", "64Gi")))
	for _, tt := range []struct {
		pods int
		want float64
	}{{1, 0.05}, {2, 0.10}, {3, 0.15}, {5, 0.20}, {16, 0.5}, {17, 0.5}, {18, 0.55}, {30, 1}} {
		pods := f.pods(tt.pods, "900m", "1Gi")
		m := price.NewMarket(f.problem(pods))
		b := price.NewBound(m, make([]float64, f.axes.Len()), &f.slots)
		plan := &price.RuledPlan{Cost: 2 * tt.want, Nodes: 1, Scheduled: []price.Scheduled{{Count: tt.pods, Requests: pods.Requests}}}
		if got := b.Integer(plan, 0); math.Abs(got-tt.want) > 1e-6 {
			t.Errorf("%d pods cost %.3f at least, want %.3f", tt.pods, got, tt.want)
		}
	}
}
