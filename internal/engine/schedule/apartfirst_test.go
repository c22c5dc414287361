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
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// equalPrices sells cores at $0.10/h in two sizes.
func equalPrices() []snapshot.Pool {
	return []snapshot.Pool{Pool("general", []*catalog.InstanceType{
		Type("small", 0.10, "cpu", "1", "memory", "64Gi", "pods", "50"),
		Type("large", 1.60, "cpu", "16", "memory", "1024Gi", "pods", "500"),
	}, Require(Capacity, in, "on-demand"))}
}

// apartAndOthers are n pods that keep apart, and 2n others, that together fill n small nodes exactly.
func apartAndOthers(n int) []*corev1.Pod {
	return append(
		Pods(n, "apart", Labeled("app", "apart"), Requests("cpu", "100m"), Apart(Host, "apart")),
		Pods(2*n, "other", Requests("cpu", "450m"))...)
}

// Pods that fit beside those that keep apart fill the nodes that these need anyway, and not nodes of their own.
func TestForcedNodesAreFilled(t *testing.T) {
	for _, n := range []int{5, 30, 160, 400} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			p := schedule.Solve(World(equalPrices(), apartAndOthers(n)...), schedule.Budget{})
			if want := 0.1 * float64(n); len(p.Rejected) > 0 || math.Abs(p.Stats.HourlyCost-want) > 1e-6 {
				t.Errorf("costs %.4f, want %.4f, %d rejected", p.Stats.HourlyCost, want, len(p.Rejected))
			}
			if p.Stats.LowerBound > p.Stats.HourlyCost+1e-9 {
				t.Errorf("the bound is %.4f", p.Stats.LowerBound)
			}
		})
	}
}

// One pod in five keeps apart from the others: the nodes that these need are filled, and the plan costs at most 1.15
// times the bound, which divides pods. If the first nodes take the small pods, it costs 1.17 to 1.24 times as much.
func TestForcedNodesAreFilledWithPodsOfAllSizes(t *testing.T) {
	list := catalogNamed(t, "ec2-od")
	for _, n := range []int{400, 1000} {
		for seed := range uint64(3) {
			p := schedule.Solve(World([]snapshot.Pool{workload.GeneralPool("general", list)}, oneInFiveApart(n, seed)...), schedule.Budget{})
			if p.Stats.HourlyCost > 1.15*p.Stats.LowerBound || len(p.Rejected) > 0 {
				t.Errorf("%d pods, seed %d: %.3f times the bound, %d rejected", n, seed, p.Stats.HourlyCost/p.Stats.LowerBound, len(p.Rejected))
			}
		}
	}
}

// oneInFiveApart is n pods of all sizes, of which one in five keeps apart from the other such pods.
func oneInFiveApart(n int, seed uint64) []*corev1.Pod {
	r := rand.New(rand.NewPCG(seed, 1))
	cpu, memory := []string{"100m", "250m", "500m", "1", "1500m"}, []string{"100Mi", "256Mi", "512Mi", "1Gi", "2Gi", "4Gi"}
	var out []*corev1.Pod
	for i := range n {
		size := Requests("cpu", cpu[r.IntN(len(cpu))], "memory", memory[r.IntN(len(memory))])
		if i%5 == 0 {
			out = append(out, Pods(1, fmt.Sprintf("apart-%d", i), Labeled("app", "apart"), size, Apart(Host, "apart"))...)
		} else {
			out = append(out, Pods(1, fmt.Sprintf("other-%d", i), size)...)
		}
	}
	return out
}
