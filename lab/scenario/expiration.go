package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// expire runs nodes with expireAfter of one minute.
func expire() Scenario {
	const nodes = 10
	const expireAfter = "60s"
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(nodes)) // expiration ignores budgets
	s.pool["EXPIRE_AFTER"] = expireAfter
	var before []string
	steps := append(
		s.setUp(),
		s.fill(nodes, nodes, 0),
		Step{
			Name:    "after a minute each node is replaced; no PodDisruptionBudget is violated",
			Timeout: 5 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				var err error
				if before, err = nodeClaimNames(ctx, w); err != nil {
					return err
				}
				// Nodes that are launched from now on stay.
				if err := s.applyPool(ctx, w, map[string]string{"EXPIRE_AFTER": "Never", "BUDGET": `"0"`}); err != nil {
					return err
				}
				begin := time.Now()
				err = world.Until(ctx, func() error {
					now, err := nodeClaimNames(ctx, w)
					if err != nil {
						return err
					}
					for _, name := range before {
						if slices.Contains(now, name) {
							return fmt.Errorf("NodeClaim %s still exists", name)
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				w.Note("the last expired NodeClaim was deleted after %.0f s", time.Since(begin).Seconds())
				return s.awaitHealthy(ctx, w)
			},
		},
		s.tearDown(),
	)
	return Scenario{Name: "expire", Summary: fmt.Sprintf("%d nodes with expireAfter %s are replaced", nodes, expireAfter), Steps: steps}
}

// emptyNodes removes most pods of a workload at once.
func emptyNodes() Scenario {
	const nodes, kept = 50, 10
	const within = 2 * time.Minute // the step notes how long it really takes
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(nodes))
	s.pool["BUDGET"] = "100%"
	steps := append(
		s.setUp(),
		s.fill(nodes, nodes, 0),
		Step{
			Name:    fmt.Sprintf("scale to %d pods: the %d empty nodes terminate within %v, and no pod moves", kept, nodes-kept, within),
			Timeout: within, Exact: true,
			Run: func(ctx context.Context, w *World) error {
				begin := time.Now()
				if err := s.scale(ctx, w, kept, 0); err != nil {
					return err
				}
				left, err := runningPodUIDs(ctx, w, frontApp)
				if err != nil {
					return err
				}
				err = world.Until(ctx, func() error {
					if n := len(w.Running()); n != kept {
						return fmt.Errorf("%d instances run, want %d", n, kept)
					}
					return nil
				})
				if err != nil {
					return err
				}
				w.Note("the last of %d instances started to terminate after %.1f s", nodes-kept, time.Since(begin).Seconds())
				now, err := runningPodUIDs(ctx, w, frontApp)
				if err != nil {
					return err
				}
				for id := range left {
					if !now[id] {
						return fmt.Errorf("pod %s moved", id)
					}
				}
				return s.awaitHealthy(ctx, w)
			},
		},
		Step{
			Name:    "new pods during terminations get other nodes, and no instance is terminated under a pod",
			Timeout: 2 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				for n := range 6 {
					if err := s.scale(ctx, w, nodes/2, 0); err != nil {
						return err
					}
					if err := s.scale(ctx, w, kept, 0); err != nil {
						return err
					}
					// Nodes stay empty for about consolidateAfter, a little shorter or longer.
					if err := pause(ctx, time.Duration(500+300*n)*time.Millisecond); err != nil {
						return err
					}
				}
				if err := s.scale(ctx, w, nodes/2, 0); err != nil {
					return err
				}
				return s.awaitHealthy(ctx, w)
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "empty-nodes",
		Summary: fmt.Sprintf("%d of %d nodes become empty at once and terminate", nodes-kept, nodes),
		Steps:   steps,
	}
}
