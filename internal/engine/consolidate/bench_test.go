package consolidate_test

import (
	"fmt"
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// BenchmarkPass is one search over a fleet at 35 % use, the snapshot compiled anew: all that a controller does before
// it acts. The fleet is fragmented, or consolidated already, so that every simulation is in vain.
func BenchmarkPass(b *testing.B) {
	for _, nodes := range []int{100, 500, 2000, 10000} {
		b.Run(fmt.Sprintf("found-%d", nodes), func(b *testing.B) { pass(b, fleet(b, nodes, 0.35, 1)) })
	}
	b.Run("settled-2000", func(b *testing.B) {
		after, _ := converge(b, fleet(b, 2000, 0.35, 1), consolidate.Settings{})
		pass(b, after)
	})
	// Fleets with nothing to save: nodes are full, and of the best types.
	for _, pods := range []int{8500, 42000} {
		b.Run(fmt.Sprintf("tight-%d-pods", pods), func(b *testing.B) { pass(b, justProvisioned(b, pods)) })
	}
}

func pass(b *testing.B, s *snapshot.Snapshot) {
	pods := 0
	for i := range s.Nodes {
		pods += len(s.Nodes[i].Pods)
	}
	list := candidates(s)
	allowed := disrupt.Allowances(s, karpv1.DisruptionUnderutilized)
	var r consolidate.Result
	b.ReportAllocs()
	for b.Loop() {
		r = consolidate.Find(
			consolidate.Input{
				Problem:    consolidate.Compile(s),
				Snapshot:   s,
				Candidates: list,
				Budgets:    allowed,
				Totals:     consolidate.PoolTotals(s, list, nil),
			},
			consolidate.Settings{},
		)
	}
	used := 0
	for _, c := range list {
		if c.Cost > 1 {
			used++
		}
	}
	if r.Examined != used {
		b.Errorf("%d of %d nodes are examined", r.Examined, used)
	}
	saved := 0.0
	for _, c := range r.Commands {
		saved += c.Savings
	}
	b.ReportMetric(float64(len(s.Nodes)), "nodes")
	b.ReportMetric(float64(pods), "pods")
	b.ReportMetric(float64(r.Simulations), "simulations")
	b.ReportMetric(float64(r.Steps), "steps")
	b.ReportMetric(float64(len(r.Commands)), "commands")
	b.ReportMetric(saved, "$/h-saved")
}

// BenchmarkConverge consolidates fleets at 31 % use until no more commands are found.
func BenchmarkConverge(b *testing.B) {
	for _, nodes := range []int{100, 500, 2000} {
		s := fleet(b, nodes, 0.31, 1)
		least := lowerBound(s)
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			var after *snapshot.Snapshot
			var took convergence
			for b.Loop() {
				after, took = converge(b, s, consolidate.Settings{})
			}
			b.ReportMetric(float64(took.commands), "commands")
			b.ReportMetric(fleetCost(s), "$/h-before")
			b.ReportMetric(fleetCost(after), "$/h-after")
			b.ReportMetric(fleetCost(after)/least, "cost/bound")
			b.ReportMetric(float64(took.moved)/(fleetCost(s)-fleetCost(after)), "pods-moved/$/h")
		})
	}
}
