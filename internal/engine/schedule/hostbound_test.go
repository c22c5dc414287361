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

// A node costs $0.10/h for 2 CPUs and $0.15/h for 4: without host rules, large nodes are cheaper.
func twoSizes() []snapshot.Pool {
	return []snapshot.Pool{Pool("general", []*catalog.InstanceType{
		Type("small", 0.10, "cpu", "2", "memory", "64Gi", "pods", "50"),
		Type("large", 0.15, "cpu", "4", "memory", "64Gi", "pods", "50"),
	}, Require(Capacity, in, "on-demand"))}
}

// Plans that host rules make expensive are as good as the bound states.
func TestHostRulesAreInTheBound(t *testing.T) {
	core, ignore := Requests("cpu", "1"), corev1.NodeInclusionPolicyIgnore
	for _, c := range []struct {
		name  string
		world *snapshot.Snapshot
		cost  float64
		bound float64
	}{
		{"anti-affinity", World(twoSizes(), Pods(3, "web", Labeled("app", "web"), core, Apart(Host, "web"))...), 0.30, 0.30},
		{"spread by one", World(twoSizes(), Pods(3, "web", Labeled("app", "web"), core, Spread(Host, 1, "web"))...), 0.30, 0.30},
		{"spread by two", World(twoSizes(), Pods(3, "web", Labeled("app", "web"), core, Spread(Host, 2, "web"))...), 0.20, 0.20},
		{"two sizes of pods with one rule", World(twoSizes(), append(
			Pods(1, "web", Labeled("app", "web"), Requests("cpu", "3"), Apart(Host, "web")),
			Pods(2, "web-s", Labeled("app", "web"), core, Apart(Host, "web"))...)...), 0.35, 0.35},
		{"a rule that pods declare twice counts once", World(twoSizes(), Pods(3, "web", Labeled("app", "web"), core, Spread(Host, 1, "web"),
			Spread(Host, 1, "web", func(c *constraint) { c.NodeAffinityPolicy = &ignore }))...), 0.30, 0.30},
		{
			"a preference does not count", World(twoSizes(), Pods(2, "web", Labeled("app", "web"), core, Spread(Host, 1, "web", anyway))...),
			0.20, 0.10,
		},
		{"nor does a rule that leaves out the pods themselves", World(twoSizes(), Pods(2, "web", Labeled("app", "web"), core,
			Apart(Host, "db"))...), 0.10, 0.10},
		// No rule alone proves more than 0.30, and requests no more than 0.3375.
		{"two rules together", World(twoSizes(), append(
			Pods(3, "web", Labeled("app", "web"), Requests("cpu", "2"), Apart(Host, "web")),
			Pods(3, "db", Labeled("app", "db"), core, Spread(Host, 1, "db"))...)...), 0.45, 0.45},
		{"existing nodes take some", withNodes(World(twoSizes(), Pods(3, "web", Labeled("app", "web"), core, Apart(Host, "web"))...),
			Node("n1", "general"), Node("n2", "general", full)), 0.20, 0.20},
		{"but not where one of them runs", withNodes(World(twoSizes(), Pods(2, "web", Labeled("app", "web"), core, Apart(Host, "web"))...),
			Node("n1", "general", func(n *snapshot.Node) {
				n.Pods = []*corev1.Pod{Bound(Pod("old", Labeled("app", "web"), core, Apart(Host, "web")), "n1")}
			})), 0.20, 0.20},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := schedule.Solve(c.world, schedule.Budget{})
			if len(p.Rejected) > 0 || math.Abs(p.Stats.HourlyCost-c.cost) > 1e-6 || p.Stats.LowerBound > c.bound*(1+1e-6) ||
				p.Stats.LowerBound < c.bound*(1-0.003) { // the linear program stops so close to its optimum
				t.Errorf("costs %.4f with bound %.4f, want %.4f and %.4f:\n%s",
					p.Stats.HourlyCost, p.Stats.LowerBound, c.cost, c.bound, describe(p))
			}
		})
	}
}

// hostRuleWorld is up to seven pods, most of them under host rules, and what the rules are: how many pods of each
// workload a node may hold.
func hostRuleWorld(r *rand.Rand) (list []*catalog.InstanceType, pods []*corev1.Pod, most map[string]int) {
	for i := range 2 + r.IntN(3) {
		cores := pick(r, 1, 2, 4, 8, 16)
		list = append(list, Type(fmt.Sprintf("t%d", i), float64(cores)*(0.03+0.04*r.Float64()), "cpu", fmt.Sprint(cores),
			"memory", fmt.Sprintf("%dGi", cores*pick(r, 2, 4, 8)), "pods", fmt.Sprint(pick(r, 4, 8))))
	}
	most = map[string]int{}
	for k, app := range []string{"a", "b", "c"} {
		edit := []func(*corev1.Pod){Labeled("app", app)}
		switch rule := r.IntN(4); {
		case rule == 0:
			edit, most[app] = append(edit, Apart(Host, app)), 1
		case rule < 3:
			most[app] = 1 + r.IntN(2)
			edit = append(edit, Spread(Host, int32(most[app]), app))
		}
		for i := range r.IntN(4 - k) {
			size := Requests("cpu", fmt.Sprintf("%dm", 100*(1+r.IntN(20))), "memory", fmt.Sprintf("%dMi", 256*(1+r.IntN(20))))
			pods = append(pods, Pod(fmt.Sprintf("%s%d", app, i), append(edit, size)...))
		}
	}
	return list, pods, most
}

// allows reports whether a node may hold these pods as far as host rules are concerned.
func allows(pods []*corev1.Pod, most map[string]int) bool {
	counts := map[string]int{}
	for _, p := range pods {
		app := p.Labels["app"]
		if counts[app]++; most[app] > 0 && counts[app] > most[app] {
			return false
		}
	}
	return true
}

// No way to divide the pods among nodes costs less than the bound, with or without an existing node.
func TestNoPlanUnderHostRulesCostsLessThanTheLowerBound(t *testing.T) {
	const worlds = 300
	sum, compared, better := 0.0, 0, 0
	for seed := range uint64(worlds) {
		r := rand.New(rand.NewPCG(seed, 13))
		list, pods, most := hostRuleWorld(r)
		s := World(singlePool(list...), pods...)
		there := Node("there", "general", func(n *snapshot.Node) {
			n.Allocatable = Resources("cpu", fmt.Sprintf("%dm", 100*(1+r.IntN(30))), "memory", fmt.Sprintf("%dGi", 1+r.IntN(6)), "pods", "3")
		})
		if seed%2 == 1 {
			s = withNodes(s, there)
		}
		p := schedule.Solve(s, schedule.Budget{})
		if len(p.Rejected) > 0 || len(pods) == 0 {
			continue
		}
		best := cheapestWithNode(s, list, most)
		if p.Stats.LowerBound > best*(1+1e-6)+1e-12 || p.Stats.HourlyCost < best*(1-1e-6) {
			t.Fatalf("seed %d: bound %.5f, best %.5f, plan %.5f:\n%s", seed, p.Stats.LowerBound, best, p.Stats.HourlyCost, describe(p))
		}
		if best > 0 && seed%2 == 0 {
			sum, compared = sum+p.Stats.LowerBound/best, compared+1
			if p.Stats.LowerBound > best*(1-1e-6) {
				better++
			}
		}
	}
	t.Logf("the bound is %.3f of the best plan in %d worlds, equal in %d", sum/float64(compared), compared, better)
	if compared < worlds/4 || sum < 0.75*float64(compared) {
		t.Errorf("on average the bound is %.3f of the best plan in %d worlds", sum/float64(compared), compared)
	}
}

// cheapestWithNode tries all ways to put pods onto the existing node, if there is one, and to divide the others among
// new nodes, and returns the lowest cost.
func cheapestWithNode(s *snapshot.Snapshot, list []*catalog.InstanceType, most map[string]int) float64 {
	best := math.Inf(1)
	for chosen := range 1 << (len(s.Pods) * len(s.Nodes)) {
		var here, others []*corev1.Pod
		var left [3]int64
		if len(s.Nodes) > 0 {
			left = amounts(s.Nodes[0].Allocatable)
		}
		for i, pod := range s.Pods {
			if chosen&(1<<i) == 0 {
				others = append(others, pod)
				continue
			}
			here = append(here, pod)
			for k, x := range amounts(snapshot.Requests(pod)) {
				left[k] -= x
			}
		}
		if left[0] >= 0 && left[1] >= 0 && left[2] >= 0 && allows(here, most) {
			best = min(best, cheapestUnderRules(others, list, most))
		}
	}
	return best
}

// cheapestUnderRules is cheapestPartition under host rules.
func cheapestUnderRules(pods []*corev1.Pod, list []*catalog.InstanceType, most map[string]int) float64 {
	best := math.Inf(1)
	var groups [][]*corev1.Pod
	var walk func(i int)
	walk = func(i int) {
		if i == len(pods) {
			cost := 0.0
			for _, g := range groups {
				cost += cheapestFor(g, list)
			}
			best = min(best, cost)
			return
		}
		for j := range groups {
			if groups[j] = append(groups[j], pods[i]); allows(groups[j], most) {
				walk(i + 1)
			}
			groups[j] = groups[j][:len(groups[j])-1]
		}
		groups = append(groups, []*corev1.Pod{pods[i]})
		walk(i + 1)
		groups = groups[:len(groups)-1]
	}
	walk(0)
	return best
}
