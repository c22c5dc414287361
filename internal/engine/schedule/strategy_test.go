package schedule_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The cost per node decides between many small nodes and a few large ones that cost a little more.
func TestNodeCostFavorsLargerNodes(t *testing.T) {
	list := []*catalog.InstanceType{
		Type("small", 0.10, "cpu", "2", "memory", "8Gi", "pods", "50"),
		Type("large", 0.42, "cpu", "8", "memory", "32Gi", "pods", "50"),
	}
	for _, c := range []struct {
		nodeCost float64
		want     []string
	}{
		{0, []string{"general small: web x2", "general small: web x2", "general small: web x2", "general small: web x2"}},
		{0.05, []string{"general large: web x8"}},
	} {
		s := with(
			World(singlePool(list...), Pods(8, "web", Requests("cpu", "1", "memory", "1Gi"))...),
			func(s *snapshot.Snapshot) { s.Settings.NodeCost = c.nodeCost },
		)
		p := schedule.Solve(s, schedule.Budget{})
		var got []string
		for i := range p.Launches {
			got = append(
				got,
				fmt.Sprintf("%s %s: %s", p.Launches[i].Pool.Name, p.Launches[i].InstanceTypes[0].Name, podGroups(p.Launches[i].Pods)),
			)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("$%.2f/h for each node: want -, got +\n%s", c.nodeCost, diff)
		}
		price := 0.0
		for _, l := range p.Launches {
			price += l.Offering.Price
		}
		extra := c.nodeCost * float64(len(p.Launches))
		if diff := cmp.Diff([]float64{price, extra}, []float64{p.Stats.HourlyCost, p.Stats.NodeCost}, approximately); diff != "" {
			t.Errorf("$%.2f/h for each node: costs want -, got +\n%s", c.nodeCost, diff)
		}
		if p.Stats.LowerBound > price+extra+1e-9 {
			t.Errorf("the bound of $%.3f/h is above $%.3f/h", p.Stats.LowerBound, price+extra)
		}
	}
}

var approximately = cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })

// leastFor is the lowest cost of n equal pods, where types hold so many of them each.
func leastFor(n int, holds []int, price []float64) float64 {
	if n <= 0 {
		return 0
	}
	best := math.Inf(1)
	for i, h := range holds {
		if h > 0 {
			best = min(best, price[i]+leastFor(n-h, holds, price))
		}
	}
	return best
}

// One workload of equal pods costs the minimum, within the 1 % that fewer nodes may cost.
func TestEqualPodsAreCoveredOptimally(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 9))
		var list []*catalog.InstanceType
		var holds []int
		var price []float64
		for i := range 2 + r.IntN(3) {
			cores := 3 + r.IntN(12)
			holds, price = append(holds, cores/2), append(price, float64(cores)*(0.01+0.007*r.Float64()))
			list = append(
				list,
				Type(fmt.Sprintf("t%d", i), 3*price[i] /* spot is a third */, "cpu", fmt.Sprint(cores), "memory", "64Gi", "pods", "50"),
			)
		}
		for _, spread := range []bool{false, true} {
			edit := append(app("web"), Requests("cpu", "2", "memory", "1Gi"))
			zones := 1
			if spread {
				edit, zones = append(edit, Spread(Zone, 1, "web")), len(Zones())
			}
			each := 3 + r.IntN(12)
			p := schedule.Solve(World(singlePool(list...), Pods(each*zones, "web", edit...)...), schedule.Budget{})
			if want := float64(zones) * leastFor(each, holds, price); p.Stats.HourlyCost > want*1.01+1e-9 || p.Stats.HourlyCost < want-1e-9 {
				t.Errorf("seed %d: %d pods in each of %d zones for $%.4f/h, the least is $%.4f/h", seed, each, zones, p.Stats.HourlyCost, want)
			}
		}
	}
}
