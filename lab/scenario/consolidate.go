package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	// MinNodes is the fewest nodes with which the checks of consolidate hold.
	MinNodes = 20
	// noneIsYoung is the age from which on a node may be replaced for a small saving.
	noneIsYoung = time.Hour
	// maxCostOverBound is the largest allowed ratio of a settled cluster's cost to the lower bound. The nodes here are
	// minutes old: the replacement of a new node must pay off within a time as long as its age, so small savings wait.
	// Toward the end the budget, a tenth of the nodes, is one or two, and savings that need more simultaneous replacements
	// remain.
	maxCostOverBound = 1.5
	// maxPredictionError is how far the cost of a settled cluster may be from what assess predicted, as a share of it. While nodes are
	// young, the cluster may still cost more: savings that are not worth it yet follow within the hour.
	maxPredictionError = 0.03
)

// consolidate removes two thirds of the pods and waits until consolidation settles.
func consolidate(fleet Fleet) Scenario {
	nodes := fleet.Nodes
	s := newDisruptionFixture()
	s.pool["CPUS"], s.pool["CONSOLIDATE_AFTER"] = `["4"]`, "Never"
	front, store := nodes, 2*nodes // two of front to a node or four of store: each half of them
	const percent = 35
	var predicted prediction
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
			Name:       "allow consolidation and more instance types, without a controller: assess predicts the cost",
			Timeout:    time.Minute,
			PauseKills: true,
			Run: func(ctx context.Context, w *World) (err error) {
				if err := w.StopController(ctx); err != nil {
					return err
				}
				if err := s.applyPool(ctx, w, map[string]string{"CPUS": `["2", "4", "8", "16"]`, "CONSOLIDATE_AFTER": "1s"}); err != nil {
					return err
				}
				predicted, err = consolidatedCost(ctx, w)
				return errors.Join(err, w.LaunchController(ctx))
			},
		},
		Step{
			Name: fmt.Sprintf(
				"the cluster settles: nothing changes for %v, and the nodes cost at most %.2f times the lower bound",
				fleet.Settle, maxCostOverBound,
			),
			Timeout: 9*time.Minute + 3*fleet.Settle,
			Run: func(ctx context.Context, w *World) error {
				begin, before := time.Now(), len(w.Instances())
				if err := s.awaitSettledCheaply(ctx, w, fleet.Settle); err != nil {
					return err
				}
				w.Note("settled after %.0f s", (time.Since(begin) - fleet.Settle).Seconds())
				if fleet.Settle < noneIsYoung { // EC2 forgets instances an hour after their termination
					w.Note("%d instances were launched for it", len(w.Instances())-before)
				}
				return noteCost(ctx, w)
			},
		},
		Step{
			Name:    predictionStep(fleet),
			Timeout: 30 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				return nearPrediction(ctx, w, predicted, fleet.Settle < noneIsYoung)
			},
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
		// A node has to be old enough that its replacement pays off: a controller that waits less only gets there before the nodes do.
		RealPace: true,
		Steps:    steps,
	}
}

// awaitSettledCheaply waits until nothing changes for a whole window, and the nodes cost little enough. How much a replacement must save
// falls as the nodes grow older: a cluster that settled at too high a cost goes on.
func (s *disruptionFixture) awaitSettledCheaply(ctx context.Context, w *World, window time.Duration) error {
	for {
		if err := s.invariants.awaitSettled(ctx, w, window); err != nil {
			return err
		}
		settled := s.invariants.changedAt()
		ratio, err := s.costOverBound(ctx, w)
		if err != nil || ratio <= maxCostOverBound {
			return err
		}
		if err := world.Until(ctx, func() error {
			if s.invariants.changedAt().Equal(settled) {
				return fmt.Errorf("nothing changes, and the nodes cost %.3f times the lower bound", ratio)
			}
			return nil
		}); err != nil {
			return err
		}
	}
}

// costOverBound returns the ratio of the nodes' cost to the lower bound of the cost of any nodes for these pods.
func (s *disruptionFixture) costOverBound(ctx context.Context, w *World) (float64, error) {
	pool, err := render(w, manifests.DisruptionPool, s.pool)
	if err != nil {
		return 0, err
	}
	workload, err := render(w, manifests.DisruptionWorkload, s.replicas())
	if err != nil {
		return 0, err
	}
	planned, err := w.Plan(ctx, pool, workload)
	if err != nil {
		return 0, err
	}
	now, err := w.Cost(ctx)
	if err != nil {
		return 0, err
	}
	bound := planned.Stats.LowerBound
	w.Note("$%.3f/h; a new plan costs $%.3f/h; the lower bound is $%.3f/h; ratio %.3f", now, planned.Stats.HourlyCost, bound, now/bound)
	if bound <= 0 {
		return 0, fmt.Errorf("the lower bound is $%.3f/h", bound)
	}
	return now / bound, nil
}

// prediction is what assess states that consolidation reaches within all protections; the cost is in $/h.
type prediction struct {
	Name             string
	HourlyCost       float64
	Nodes, Evictions int
}

func consolidatedCost(ctx context.Context, w *World) (prediction, error) {
	said, exit, err := w.RunDovetail(ctx, "assess", "-o", "json")
	if err != nil {
		return prediction{}, err
	}
	if exit != 0 {
		return prediction{}, fmt.Errorf("assess exits with %d:\n%s", exit, said)
	}
	var report struct{ Outcomes []prediction }
	if err := json.Unmarshal(said, &report); err != nil {
		return prediction{}, fmt.Errorf("assess: %w", err)
	}
	for _, o := range report.Outcomes {
		if o.Name == "consolidated" && o.Nodes > 0 {
			w.Note("$%.3f/h with %d nodes, after %d evictions", o.HourlyCost, o.Nodes, o.Evictions)
			return o, nil
		}
	}
	return prediction{}, fmt.Errorf("assess names no outcome of consolidation:\n%s", said)
}

func predictionStep(fleet Fleet) string {
	if fleet.Settle < noneIsYoung {
		return fmt.Sprintf("the nodes cost no less than %.0f %% below what assess predicted", 100*maxPredictionError)
	}
	return fmt.Sprintf("the nodes cost what assess predicted, within %.0f %%", 100*maxPredictionError)
}

// nearPrediction compares the cost of the nodes with what assess predicted. Young nodes may still cost more.
func nearPrediction(ctx context.Context, w *World, predicted prediction, young bool) error {
	now, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	off := now/predicted.HourlyCost - 1
	w.Note("$%.3f/h, %+.1f %%", now, 100*off)
	if off < -maxPredictionError || off > maxPredictionError && !young {
		return fmt.Errorf("assess predicted $%.3f/h, but the nodes cost $%.3f/h", predicted.HourlyCost, now)
	}
	return nil
}
