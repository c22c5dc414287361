package schedule_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/fixture"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// What a node costs besides its price decides between many small ones and a few large ones that are a little dearer.
func TestNodesCostMoreThanTheirPrice(t *testing.T) {
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
		s := with(World(only(list...), Pods(8, "web", Asks("cpu", "1", "memory", "1Gi"))...), func(s *snapshot.Snapshot) { s.Settings.NodeCost = c.nodeCost })
		p := schedule.Solve(s, schedule.Budget{})
		var got []string
		for i := range p.Launches {
			got = append(got, fmt.Sprintf("%s %s: %s", p.Launches[i].Pool.Name, p.Launches[i].InstanceTypes[0].Name, family(p.Launches[i].Pods)))
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
