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

// cheapestPartition tries all partitions of pods among new nodes, and returns the lowest cost.
func cheapestPartition(pods []*corev1.Pod, list []*catalog.InstanceType) float64 {
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
			groups[j] = append(groups[j], pods[i])
			walk(i + 1)
			groups[j] = groups[j][:len(groups[j])-1]
		}
		groups = append(groups, []*corev1.Pod{pods[i]})
		walk(i + 1)
		groups = groups[:len(groups)-1]
	}
	walk(0)
	return best
}

// cheapestFor is the lowest price of one node for all of the pods.
func cheapestFor(pods []*corev1.Pod, list []*catalog.InstanceType) float64 {
	var total [3]int64
	arch := ""
	for _, p := range pods {
		for i, x := range amounts(p.Spec.Containers[0].Resources.Requests) {
			total[i] += x
		}
		total[2]++
		want := p.Spec.NodeSelector[Arch]
		if want != "" && arch != "" && want != arch {
			return math.Inf(1)
		}
		if want != "" {
			arch = want
		}
	}
	best := math.Inf(1)
	for _, it := range list {
		has := amounts(it.Allocatable)
		if total[0] > has[0] || total[1] > has[1] || total[2] > has[2] || arch != "" && !it.Requirements.Get(Arch).Has(arch) {
			continue
		}
		for _, o := range it.Offerings {
			best = min(best, o.Price)
		}
	}
	return best
}

func TestNoPlanCostsLessThanTheLowerBound(t *testing.T) {
	tight := 0.0
	const small = 200
	for seed := range uint64(small) {
		r := rand.New(rand.NewPCG(seed, 3))
		var list []*catalog.InstanceType
		for i := range 2 + r.IntN(4) {
			cores := pick(r, 2, 4, 8, 16)
			it := Type(
				fmt.Sprintf("t%d", i),
				float64(cores)*(0.03+0.04*r.Float64()),
				"cpu",
				fmt.Sprint(cores),
				"memory",
				fmt.Sprintf("%dGi", cores*pick(r, 2, 4, 8)),
				"pods",
				fmt.Sprint(pick(r, 4, 8)),
			)
			list = append(list, WithLabel(it, Arch, pick(r, "amd64", "amd64", "arm64")))
		}
		var pods []*corev1.Pod
		for i := range 1 + r.IntN(7) {
			p := Pod(
				fmt.Sprintf("p%d", i),
				Requests("cpu", fmt.Sprintf("%dm", 100*(1+r.IntN(30))), "memory", fmt.Sprintf("%dMi", 256*(1+r.IntN(30)))),
			)
			if maybe(r, 30) {
				Selects(Arch, pick(r, "amd64", "arm64"))(p)
			}
			pods = append(pods, p)
		}
		p := schedule.Solve(World(singlePool(list...), pods...), schedule.Budget{})
		var placed []*corev1.Pod
		for _, l := range p.Launches {
			placed = append(placed, l.Pods...)
		}
		best := cheapestPartition(placed, list)
		if len(placed) == 0 {
			best = 0
		}
		if p.Stats.LowerBound > best*(1+1e-6) || p.Stats.HourlyCost < best*(1-1e-6) {
			t.Fatalf("seed %d: bound %.5f, best %.5f, plan %.5f", seed, p.Stats.LowerBound, best, p.Stats.HourlyCost)
		}
		if best > 0 {
			tight += p.Stats.LowerBound / best
		}
	}
	// A bound of zero is valid too, but useless.
	if tight < 0.4*small {
		t.Errorf("on average the bound is %.2f of the best plan", tight/small)
	}
}

// The lower bound holds where some of the pods fit onto an existing node, whichever of them go there.
func TestLowerBoundWithExistingRoom(t *testing.T) {
	positive := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		var list []*catalog.InstanceType
		for i := range 2 + r.IntN(3) {
			cores := pick(r, 2, 4, 8)
			list = append(
				list,
				Type(
					fmt.Sprintf("t%d", i),
					float64(cores)*(0.03+0.04*r.Float64()),
					"cpu",
					fmt.Sprint(cores),
					"memory",
					fmt.Sprintf("%dGi", cores*pick(r, 2, 4, 8)),
					"pods",
					"8",
				),
			)
		}
		var pods []*corev1.Pod
		for i := range 2 + r.IntN(4) {
			pods = append(
				pods,
				Pod(
					fmt.Sprintf("p%d", i),
					Requests("cpu", fmt.Sprintf("%dm", 100*(1+r.IntN(20))), "memory", fmt.Sprintf("%dMi", 256*(1+r.IntN(20)))),
				),
			)
		}
		there := Node("there", "general", func(n *snapshot.Node) {
			n.Allocatable = Resources("cpu", fmt.Sprintf("%dm", 100*(1+r.IntN(30))), "memory", fmt.Sprintf("%dGi", 1+r.IntN(6)), "pods", "3")
		})
		p := schedule.Solve(withNodes(World(singlePool(list...), pods...), there), schedule.Budget{})
		if len(p.Rejected) > 0 {
			continue
		}
		room, best := amounts(there.Allocatable), math.Inf(1)
		for chosen := range 1 << len(pods) {
			left, others := room, []*corev1.Pod(nil)
			for i, pod := range pods {
				if chosen&(1<<i) == 0 {
					others = append(others, pod)
					continue
				}
				for k, x := range amounts(snapshot.Requests(pod)) {
					left[k] -= x
				}
			}
			if left[0] >= 0 && left[1] >= 0 && left[2] >= 0 {
				best = min(best, cheapestPartition(others, list))
			}
		}
		if p.Stats.LowerBound > best*(1+1e-6)+1e-12 || p.Stats.HourlyCost < best*(1-1e-6) {
			t.Fatalf("seed %d: bound %.5f, best %.5f, plan %.5f", seed, p.Stats.LowerBound, best, p.Stats.HourlyCost)
		}
		positive += btoi(p.Stats.LowerBound > 0)
	}
	if positive < 20 {
		t.Errorf("the bound says something %d times only", positive)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
