package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

const (
	// DefaultNodes is how many nodes the scenario consolidate starts with. MinNodes is the fewest with which its checks
	// hold.
	DefaultNodes = 200
	MinNodes     = 20
	// settleWindow is how long a cluster must not change to count as settled. A consolidation pass with a result takes
	// less.
	settleWindow = 45 * time.Second
	// maxCostOverBound is the largest allowed ratio of a settled cluster's cost to the lower bound. The nodes here are
	// minutes old: the replacement of a new node must pay off within a time as long as its age, so small savings wait.
	// Toward the end the budget, a tenth of the nodes, is one or two, and savings that need more simultaneous replacements
	// remain.
	maxCostOverBound = 1.5
)

// consolidate removes two thirds of the pods and waits until consolidation settles.
func consolidate(nodes int) Scenario {
	s := newDisruptionFixture()
	s.pool["CPUS"], s.pool["CONSOLIDATE_AFTER"] = `["4"]`, "Never"
	front, store := nodes, 2*nodes // two of front to a node or four of store: each half of them
	const percent = 35
	steps := append(
		s.setUp(),
		s.fill(nodes, front, store),
		Step{
			Name:    fmt.Sprintf("scale to %d %% of the pods, spread over the nodes", percent),
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				return s.scale(ctx, w, front*percent/100, store*percent/100)
			},
		},
		Step{
			Name:    "allow consolidation and more instance types: the cluster settles",
			Timeout: 15 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				begin, before := time.Now(), len(w.Instances())
				if err := s.applyPool(ctx, w, map[string]string{"CPUS": `["2", "4", "8", "16"]`, "CONSOLIDATE_AFTER": "1s"}); err != nil {
					return err
				}
				if err := s.invariants.awaitSettled(ctx, w, settleWindow); err != nil {
					return err
				}
				w.Note(
					"settled after %.0f s; %d instances were launched for it",
					(time.Since(begin) - settleWindow).Seconds(),
					len(w.Instances())-before,
				)
				return noteCost(ctx, w)
			},
		},
		Step{
			Name:    fmt.Sprintf("the nodes cost at most %.2f times the lower bound", maxCostOverBound),
			Timeout: 30 * time.Second,
			Run:     s.costNearLowerBound,
		},
		Step{
			Name:       "all pods run; no disruption budget or PodDisruptionBudget was ever violated",
			Timeout:    30 * time.Second,
			PauseKills: true,
			Run:        s.awaitHealthy,
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "consolidate",
		Summary: fmt.Sprintf("%d nodes, %d %% used: consolidation removes most of them within all disruption budgets", nodes, percent),
		Long:    true,
		Steps:   steps,
	}
}

// costNearLowerBound compares the cost of the nodes with the lower bound of any nodes for these pods.
func (s *disruptionFixture) costNearLowerBound(ctx context.Context, w *World) error {
	pool, err := render(w, manifests.DisruptionPool, s.pool)
	if err != nil {
		return err
	}
	workload, err := render(w, manifests.DisruptionWorkload, s.replicas())
	if err != nil {
		return err
	}
	planned, err := w.Plan(ctx, pool, workload)
	if err != nil {
		return err
	}
	now, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	bound := planned.Stats.LowerBound
	w.Note("$%.3f/h; a new plan costs $%.3f/h; the lower bound is $%.3f/h; ratio %.3f", now, planned.Stats.HourlyCost, bound, now/bound)
	if bound <= 0 || now > maxCostOverBound*bound {
		return fmt.Errorf("the cost of $%.3f/h is more than %.2f times the lower bound of $%.3f/h", now, maxCostOverBound, bound)
	}
	return nil
}
