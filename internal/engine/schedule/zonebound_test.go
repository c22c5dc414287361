package schedule_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// pricedZones is one type of 4 CPUs at these prices in zones z1, z2 and z3.
func pricedZones(prices ...float64) *catalog.InstanceType {
	it := Type("large", 1, "cpu", "4", "memory", "64Gi", "pods", "50")
	var offerings []catalog.Offering
	for i, price := range prices {
		offerings = append(offerings, Offering(Zones()[i], "on-demand", price))
	}
	return WithOfferings(it, offerings...)
}

// The bound counts what the zones cost that a spread forces pods into.
func TestZoneRulesAreInTheBound(t *testing.T) {
	size := Requests("cpu", "4")
	web := func(n int, edit ...func(*corev1.Pod)) []*corev1.Pod {
		return Pods(n, "web", append(edit, Labeled("app", "web"), size)...)
	}
	spread := Spread(Zone, 1, "web")
	pools := []snapshot.Pool{Pool("general", []*catalog.InstanceType{pricedZones(0.10, 0.15, 0.20)})}
	inThird := func(n *snapshot.Node) { n.Labels[Zone] = "z3" }
	running := func(n *snapshot.Node) {
		n.Pods = []*corev1.Pod{Bound(Pod("old", Labeled("app", "web"), Requests("cpu", "4"), spread), n.Name)}
		inThird(n)
	}
	for _, c := range []struct {
		name        string
		world       *snapshot.Snapshot
		cost, bound float64
	}{
		{"a pod in each zone", World(pools, web(3, spread)...), 0.45, 0.45},
		{"the fourth pod is free", World(pools, web(4, spread)...), 0.55, 0.55},
		{"no zone is certain", World(pools, web(2, spread)...), 0.25, 0.20},
		{"a skew of two", World(pools, web(6, Spread(Zone, 2, "web"))...), 0.80, 0.75},
		{"a preference does not count", World(pools, web(3, Spread(Zone, 1, "web", anyway))...), 0.45, 0.30},
		{"nor does a rule with other pods", World(pools, append(web(3, spread),
			Pod("other", Labeled("app", "web"), size, Selects(Zone, "z3")))...), 0.55, 0.50},
		{"a running pod is in its zone", withNodes(World(pools, web(2, spread)...), Node("n", "general", running)), 0.25, 0.25},
		{"a node has room in the cheapest zone", withNodes(World(pools, web(3, spread)...), Node("n", "general")), 0.35, 0.35},
		{"a node has room in another zone", withNodes(World(pools, web(3, spread)...), Node("n", "general", inThird)), 0.25, 0.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := solveValid(t, c.world)
			if len(p.Rejected) > 0 || math.Abs(p.Stats.HourlyCost-c.cost) > 1e-6 || math.Abs(p.Stats.LowerBound-c.bound) > c.bound*0.003 {
				t.Errorf("costs %.4f with bound %.4f, want %.4f and %.4f:\n%s",
					p.Stats.HourlyCost, p.Stats.LowerBound, c.cost, c.bound, describe(p))
			}
		})
	}
}

// Pods that need CPU would share nodes with pods that need memory. A spread keeps half of them where there are none.
func TestBoundKnowsWhichPodsCannotShareNodes(t *testing.T) {
	balanced := Type("balanced", 1, "cpu", "6100m", "memory", "6200Mi", "pods", "50")
	pools := []snapshot.Pool{Pool("general", []*catalog.InstanceType{
		WithOfferings(balanced, Offering("z1", "on-demand", 0.60), Offering("z2", "on-demand", 0.60)),
	})}
	hungry := Pods(12, "memory", Requests("cpu", "1m", "memory", "1Gi"), Selects(Zone, "z1"))
	busy := func(edit ...func(*corev1.Pod)) []*corev1.Pod {
		return Pods(12, "cpu", append(edit, Labeled("app", "web"), Requests("cpu", "1", "memory", "1Mi"))...)
	}
	for _, c := range []struct {
		name string
		pods []*corev1.Pod
		cost float64
	}{
		{"anywhere", busy(), 1.20},
		{"half of them in the other zone", busy(Spread(Zone, 1, "web")), 1.80},
	} {
		p := solveValid(t, World(pools, append(c.pods, hungry...)...))
		if math.Abs(p.Stats.HourlyCost-c.cost) > 1e-6 || p.Stats.LowerBound < c.cost*0.95 {
			t.Errorf("%s: costs %.4f with bound %.4f, want %.4f and at least %.4f:\n%s",
				c.name, p.Stats.HourlyCost, p.Stats.LowerBound, c.cost, c.cost*0.95, describe(p))
		}
	}
}

// zoneRuleWorld is up to six pods, most of them under zone rules, and types at different prices in each zone. On an
// existing node in the first zone is room for some pods, and a pod of a runs there.
func zoneRuleWorld(r *rand.Rand) (list []*catalog.InstanceType, s *snapshot.Snapshot, skews map[string]int) {
	factors := []float64{1, 0.6 + r.Float64(), 0.6 + 2*r.Float64()}
	for i := range 1 + r.IntN(3) {
		cores := pick(r, 1, 2, 4, 8)
		it := Type(fmt.Sprintf("t%d", i), 1, "cpu", fmt.Sprint(cores), "memory", fmt.Sprintf("%dGi", cores*pick(r, 2, 4, 8)), "pods", "8")
		var offerings []catalog.Offering
		for k, zone := range Zones() {
			offerings = append(offerings, Offering(zone, "on-demand", float64(cores)*factors[k]*(0.03+0.02*r.Float64())))
		}
		list = append(list, WithOfferings(it, offerings...))
	}
	var pods []*corev1.Pod
	skews = map[string]int{}
	for _, app := range []string{"a", "b"} {
		edit := []func(*corev1.Pod){Labeled("app", app)}
		if r.IntN(4) > 0 {
			skews[app] = 1 + r.IntN(2)
			edit = append(edit, Spread(Zone, int32(skews[app]), app))
		}
		sizes := []func(*corev1.Pod){sizeOfPod(r), sizeOfPod(r)}
		for i := range 1 + r.IntN(3) {
			pods = append(pods, Pod(fmt.Sprintf("%s%d", app, i), append(edit, sizes[r.IntN(2)])...))
		}
	}
	s = World(singlePool(list...), pods...)
	if r.IntN(2) == 0 {
		s = withNodes(s, Node("there", "general", func(n *snapshot.Node) {
			n.Allocatable = Resources("cpu", fmt.Sprintf("%dm", 500+100*r.IntN(30)), "memory", fmt.Sprintf("%dGi", 1+r.IntN(6)), "pods", "3")
			if r.IntN(2) == 0 {
				n.Pods = []*corev1.Pod{Bound(Pod("old", Labeled("app", "a"), Requests("cpu", "100m")), "there")}
			}
		}))
	}
	return list, s, skews
}

func sizeOfPod(r *rand.Rand) func(*corev1.Pod) {
	return Requests("cpu", fmt.Sprintf("%dm", 100*(1+r.IntN(10))), "memory", fmt.Sprintf("%dMi", 256*(1+r.IntN(8))))
}

// spreadAllows reports whether pods can come to these zones one after the other under maxSkew: it puts the next pod into
// the zone that has the fewest of those that still need one.
func spreadAllows(want []int, running []int, skew int) bool {
	count := append([]int{}, running...)
	for {
		next, least := -1, min(count[0], count[1], count[2])
		for z := range count {
			if count[z] < running[z]+want[z] && (next < 0 || count[z] < count[next]) {
				next = z
			}
		}
		if next < 0 {
			return true
		}
		if count[next]+1-least > skew {
			return false
		}
		count[next]++
	}
}

// zonePlans tries all plans of a zoneRuleWorld.
type zonePlans struct {
	s     *snapshot.Snapshot
	lists [3][]*catalog.InstanceType // by zone
	known [3]map[int]float64         // by zone and pods
	skews map[string]int
}

// cheapest is the lowest cost of all ways to put pods into zones and onto nodes.
func (z *zonePlans) cheapest() float64 {
	best, ways := math.Inf(1), int(math.Pow(3, float64(len(z.s.Pods))))
	for way := range ways {
		var in [3]int
		for i, rest := 0, way; i < len(z.s.Pods); i, rest = i+1, rest/3 {
			in[rest%3] |= 1 << i
		}
		if z.allows(in) {
			best = min(best, z.costs(0, in[0])+z.costs(1, in[1])+z.costs(2, in[2]))
		}
	}
	return best
}

func (z *zonePlans) allows(in [3]int) bool {
	for app, skew := range z.skews {
		want, running := make([]int, 3), make([]int, 3)
		for zone, set := range in {
			for i, p := range z.s.Pods {
				want[zone] += btoi(set&(1<<i) != 0 && p.Labels["app"] == app)
			}
		}
		for _, n := range z.s.Nodes {
			for _, p := range n.Pods {
				running[0] += btoi(p.Labels["app"] == app)
			}
		}
		if !spreadAllows(want, running, skew) {
			return false
		}
	}
	return true
}

// costs is the lowest cost of these pods in a zone, some of them on the existing node.
func (z *zonePlans) costs(zone, set int) float64 {
	if cost, ok := z.known[zone][set]; ok {
		return cost
	}
	best := math.Inf(1)
	for here := set; ; here = (here - 1) & set {
		if here == 0 || zone == 0 && len(z.s.Nodes) > 0 && z.fitsOnNode(here) {
			best = min(best, cheapestPartition(z.podsOf(set&^here), z.lists[zone]))
		}
		if here == 0 {
			break
		}
	}
	z.known[zone][set] = best
	return best
}

func (z *zonePlans) podsOf(set int) []*corev1.Pod {
	var out []*corev1.Pod
	for i, p := range z.s.Pods {
		if set&(1<<i) != 0 {
			out = append(out, p)
		}
	}
	return out
}

func (z *zonePlans) fitsOnNode(set int) bool {
	n := z.s.Nodes[0]
	left := amounts(n.Allocatable)
	for _, p := range append(z.podsOf(set), n.Pods...) {
		for k, x := range amounts(snapshot.Requests(p)) {
			left[k] -= x
		}
	}
	return left[0] >= 0 && left[1] >= 0 && left[2] >= 0
}

// No way to put pods into zones and onto nodes costs less than the bound, with or without running pods and existing
// nodes.
func TestNoPlanUnderZoneRulesCostsLessThanTheLowerBound(t *testing.T) {
	const worlds = 300
	compared, better := 0, 0
	for seed := range uint64(worlds) {
		list, s, skews := zoneRuleWorld(rand.New(rand.NewPCG(seed, 17)))
		z := &zonePlans{s: s, skews: skews}
		for k, zone := range Zones() {
			z.known[k] = map[int]float64{}
			for _, it := range list {
				in := *it
				in.Offerings = []catalog.Offering{it.Offerings[k]}
				if in.Offerings[0].Zone != zone {
					t.Fatalf("offering %d is in %s", k, in.Offerings[0].Zone)
				}
				z.lists[k] = append(z.lists[k], &in)
			}
		}
		p := schedule.Solve(s, schedule.Budget{})
		best := z.cheapest()
		if len(p.Rejected) > 0 {
			continue
		}
		if p.Stats.LowerBound > best*(1+1e-6)+1e-12 || p.Stats.HourlyCost < best*(1-1e-6) {
			t.Fatalf("seed %d: bound %.5f, best %.5f, plan %.5f:\n%s", seed, p.Stats.LowerBound, best, p.Stats.HourlyCost, describe(p))
		}
		compared++
		better += btoi(p.Stats.HourlyCost > best*(1+1e-6))
	}
	t.Logf("%d worlds compared, %d plans are not optimal", compared, better)
	if compared < worlds/2 {
		t.Errorf("only %d worlds compared", compared)
	}
}
