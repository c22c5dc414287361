package consolidate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// tiny is a few nodes of a few types with a few pods.
func tiny(seed uint64) *snapshot.Snapshot {
	r := rand.New(rand.NewPCG(seed, 9))
	list := []*catalog.InstanceType{
		priced("m", 2, 0.1, 0), priced("l", 4, 0.19, 0), priced("xl", 8, 0.37, 0), priced("2xl", 16, 0.72, 0),
		Type(
			"lean",
			0.085,
			"cpu",
			"2",
			"memory",
			"4Gi",
		), Type("lean-l", 0.165, "cpu", "4", "memory", "8Gi"), Type("fat", 0.13, "cpu", "2", "memory", "16Gi"),
	}
	s := world(list, Require(Capacity, corev1.NodeSelectorOpIn, onDemand))
	for k := range 2 + r.IntN(5) {
		n := add(s, 0, fmt.Sprintf("node-%d", k), list[r.IntN(len(list))].Name, onDemand)
		free := [2]int64{n.Allocatable.Cpu().MilliValue(), n.Allocatable.Memory().Value() >> 20}
		for i := range 1 + r.IntN(4) {
			cpu, memory := int64(250*(1+r.IntN(6))), int64(512*(1+r.IntN(10)))
			if free[0] -= cpu; free[0] < 0 {
				break
			}
			if free[1] -= memory; free[1] < 0 {
				break
			}
			p := Pod(
				fmt.Sprintf("pod-%d-%d", k, i),
				Requests("cpu", fmt.Sprintf("%dm", cpu), "memory", fmt.Sprintf("%dMi", memory)),
				OwnedBy("apps/v1", "ReplicaSet"),
			)
			n.Pods = append(n.Pods, Bound(p, n.Name))
		}
	}
	// Emptiness is another disruption method.
	s.Nodes = slices.DeleteFunc(s.Nodes, func(n snapshot.Node) bool { return len(n.Pods) == 0 })
	return s
}

// bestSubset simulates the removal of every set of candidates, and returns the most that one saves.
func bestSubset(s *snapshot.Snapshot) float64 {
	list := candidates(s)
	p := schedule.Compile(s)
	best := 0.0
	for set := 1; set < 1<<len(list); set++ {
		var q schedule.Simulation
		price, n := 0.0, 0
		for k, c := range list {
			if set&(1<<k) != 0 {
				q.Removed, q.Pods = append(q.Removed, c.Index), append(q.Pods, c.Pods...)
				price += c.Price
				n++
			}
		}
		plan := p.Simulate(q)
		if len(plan.Rejected) == 0 && !(n == 1 && len(plan.Launches) > 1) {
			best = max(best, price-plan.Stats.HourlyCost)
		}
	}
	return best
}

// TestAgainstEverySubset compares what is saved in the end with the most that removing any one set of nodes would
// save. A little less is fine if that would launch more nodes.
func TestAgainstEverySubset(t *testing.T) {
	worlds, found, possible := 0, 0.0, 0.0
	equal := 0
	for seed := range uint64(150) {
		s := tiny(seed)
		best := bestSubset(s)
		start := fleetCost(s)
		after := s
		for range 20 {
			r := find(after, consolidate.Settings{})
			if len(r.Commands) == 0 {
				break
			}
			after = carryOut(after, r.Commands, 24*time.Hour)
		}
		saved := start - fleetCost(after)
		if saved < -1e-9 {
			t.Errorf("seed %d: the cost of the fleet rose by %v", seed, -saved)
		}
		if saved < 0.7*best {
			t.Errorf("seed %d: %.4f $/h of %.4f are saved, %.4f are possible\n%s", seed, saved, start, best, describe(find(s, defaults())))
		}
		if best > 0 {
			worlds++
			found += saved
			possible += best
			if saved >= best-1e-9 {
				equal++
			}
		}
	}
	t.Logf("in %d of %d worlds as much is saved as by the best set of nodes, in all %.4f of it", equal, worlds, found/possible)
	if found < 0.98*possible || equal*3 < worlds*2 {
		t.Errorf(
			"in %d of %d worlds as much is saved as by the best set of nodes, in all %.4f of it: want more",
			equal,
			worlds,
			found/possible,
		)
	}
}
