package schedule_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/hostilepods"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// Pods that prefer and require nodes and pods by hundreds of terms over as many keys, as the API server admits them, take a small part of
// the steps of a plan, and what they take of memory is bounded, too. Those of other owners get their nodes.
func TestPodsOfManyKeysTakeASmallPartOfAPlan(t *testing.T) {
	// The share is of MaxSteps; the worst of 150 worlds takes a 28th. A plan of 200 pods beside makes 0.1 to 1.4 GiB of garbage.
	const share, mostBytes = 8, 2 << 30
	for name, c := range map[string]struct {
		draw  func(func() byte) []*corev1.Pod
		seeds []uint64
	}{
		"preferring": {hostilepods.DrawPreferring, []uint64{11, 18, 48, 125}},
		"requiring":  {hostilepods.DrawRequiring, []uint64{7, 17, 118}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, seed := range c.seeds {
				random := rand.New(rand.NewPCG(seed, 3))
				s := besideHostile(200, c.draw(func() byte { return byte(random.Uint32()) }))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				p := schedule.Solve(s, schedule.DefaultBudget())
				runtime.ReadMemStats(&after)
				if most := schedule.DefaultBudget().MaxSteps / share; p.Stats.Steps > most {
					t.Errorf("pods %d: %d steps, want at most %d", seed, p.Stats.Steps, most)
				}
				if bytes := after.TotalAlloc - before.TotalAlloc; bytes > mostBytes {
					t.Errorf("pods %d: %d bytes are allocated", seed, bytes)
				}
				for _, r := range p.Rejected {
					if app := r.Pod.Labels["app"]; app != "hostile" && app != "a" {
						t.Errorf("pods %d: %s is left without a node: %v", seed, r.Pod.Name, r.Reasons)
					}
				}
			}
		})
	}
}
