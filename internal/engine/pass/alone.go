package pass

import (
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// Alone searches for savings by removing a node and no other, as if its budgets let it go. The Problem is that of the View's Snapshot, and
// unchanged when Alone returns. It costs a few simulations.
func Alone(p *schedule.Problem, v *disrupt.View, c *disrupt.Candidate, st consolidate.Settings) consolidate.Result {
	costs, _ := new(disrupt.PoolCosts).Update(v)
	return consolidate.Find(consolidate.Input{
		Problem: p, Snapshot: v.Snapshot, Candidates: []*disrupt.Candidate{c},
		Budgets: []disrupt.Allowance{{Pool: c.Pool, Nodes: 1, Allowed: 1}},
		Totals:  consolidate.PoolTotals(v.Snapshot, v.Candidates, costs),
	}, st)
}

// Irreplaceable is why a drifted node cannot be replaced now, as far as its pods are concerned; the zero value if it can. It costs one
// simulation.
func Irreplaceable(p *schedule.Problem, v *disrupt.View, c *disrupt.Candidate, remaining *disrupt.RemainingBudgets) disrupt.Why {
	cmd, left := replace.Drift(p, v, replace.DriftSearch{
		Order: []*disrupt.Candidate{c}, Remaining: remaining, MaxRejections: 1, Budget: schedule.DefaultBudget(),
	})
	if cmd == nil && len(left) > 0 {
		return left[0].Why
	}
	return disrupt.Why{}
}
