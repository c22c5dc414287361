package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

const (
	// DefaultNodes are how many nodes the story of consolidation begins with; MinNodes are enough to tell it.
	DefaultNodes = 200
	MinNodes   = 20
	// settleWindow is for how long nothing must have happened for a cluster to be settled. A pass that finds something takes less.
	settleWindow = 45 * time.Second
	// maxCostOverBound is how much dearer than the lower bound a settled cluster may be. Its nodes are minutes old here: to replace one
	// that was just launched has to pay within a time as long as its age, so what saves little waits. Towards the end a tenth of the
	// nodes are one or two, and what could only be saved by replacing more of them together is left.
	maxCostOverBound = 1.5
)

// consolidate is a fleet that was bought for three times the work.
func consolidate(nodes int) Scenario {
	s := newDisruptionFixture()
	s.pool["CPUS"], s.pool["CONSOLIDATE_AFTER"] = `["4"]`, "Never"
	front, store := nodes, 2*nodes // two of front to a node or four of store: each half of them
	const percent = 35
	steps := append(s.setUp(),
		s.fill(nodes, front, store),
		Step{Name: fmt.Sprintf("%d %% of the pods are left, spread over the nodes", percent), Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
			return s.scale(ctx, w, front*percent/100, store*percent/100)
		}},
		Step{Name: "allow consolidation, also on other machines: the cluster settles", Timeout: 15 * time.Minute, Run: func(ctx context.Context, w *World) error {
			begin, before := time.Now(), len(w.Instances())
			if err := s.applyPool(ctx, w, map[string]string{"CPUS": `["2", "4", "8", "16"]`, "CONSOLIDATE_AFTER": "1s"}); err != nil {
				return err
			}
			if err := s.invariants.awaitSettled(ctx, w, settleWindow); err != nil {
				return err
			}
			w.Note("settled after %.0f s; %d instances were launched for it", (time.Since(begin) - settleWindow).Seconds(), len(w.Instances())-before)
			return noteCost(ctx, w)
		}},
		Step{Name: fmt.Sprintf("it costs at most %.2f of the lower bound", maxCostOverBound), Timeout: 30 * time.Second, Run: s.costNearLowerBound},
		Step{Name: "all pods run; budgets and disruption budgets were kept at every instant", Timeout: 30 * time.Second, PauseKills: true, Run: s.awaitHealthy},
		s.tearDown(),
	)
	return Scenario{
		Name:    "consolidate",
		Summary: fmt.Sprintf("%d nodes of which %d %% are used: they become few, within every budget", nodes, percent),
		Long:    true,
		Steps:   steps,
	}
}

// cheap compares what the nodes cost with the least that nodes for these pods can cost.
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
	w.Note("$%.3f/h; bought anew it would be $%.3f/h, and cannot be less than $%.3f/h: %.3f of it", now, planned.Stats.HourlyCost, bound, now/bound)
	if bound <= 0 || now > maxCostOverBound*bound {
		return fmt.Errorf("$%.3f/h is more than %.2f of $%.3f/h", now, maxCostOverBound, bound)
	}
	return nil
}
