package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Nodes for other pods make a zone in which none can be launched for the pods that spread: each is kept out of it, or its
// zone is counted.
func BenchmarkNodesForOtherPodsInAnotherZone(b *testing.B) {
	for _, c := range []struct {
		name  string
		zones []string
	}{
		{"kept out", []string{"z2", "z3"}},
		{"counted", []string{"z3"}},
	} {
		for _, n := range []int{100, 400, 1600} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				pods := append(
					Pods(n, "web", Labeled("app", "web"), Requests("cpu", "1"), Spread(Zone, 1, "web")),
					Pods(n, "db", Labeled("app", "db"), Requests("cpu", "3"), Tolerates("dedicated"))...)
				s := World([]snapshot.Pool{
					Pool("front", Types(), Require(Zone, in, "z1", "z2")),
					Pool("back", Types(), Require(Zone, in, c.zones...), PoolTaint("dedicated", corev1.TaintEffectNoSchedule), Weight(2)),
				}, pods...)
				benchmarkPlans(b, s)
			})
		}
	}
}

// Nodes may come up in any zone, and hold pods that others keep apart from: one of them gets its zone after the other.
func BenchmarkPodsKeptApartFromNodesOfAnyZone(b *testing.B) {
	for _, n := range []int{100, 400, 1600} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pods := append(
				Pods(n, "web", Labeled("app", "web"), Requests("cpu", "3")),
				Pods(10, "alone", Requests("cpu", "1"), Apart(Zone, "web"))...)
			benchmarkPlans(b, World([]snapshot.Pool{Pool("general", Types())}, pods...))
		})
	}
}

func benchmarkPlans(b *testing.B, s *snapshot.Snapshot) {
	b.ReportAllocs()
	steps := 0
	for b.Loop() {
		steps = schedule.Solve(s, schedule.DefaultBudget()).Stats.Steps
	}
	b.ReportMetric(float64(steps), "steps/op")
}
