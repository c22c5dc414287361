package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// expire are nodes that may live for a minute only.
func expire() Scenario {
	const nodes = 10
	const life = "60s"
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(nodes)) // expiration knows no budget
	s.pool["EXPIRE_AFTER"] = life
	var before []string
	steps := append(s.setUp(),
		s.fill(nodes, nodes, 0),
		Step{Name: "a minute later each node is replaced; no disruption budget is violated", Timeout: 5 * time.Minute, Run: func(ctx context.Context, w *World) error {
			var err error
			if before, err = nodeClaimNames(ctx, w); err != nil {
				return err
			}
			// Those that are bought from now on stay.
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
						return fmt.Errorf("NodeClaim %s is still there", name)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			w.Note("the last one had gone after %.0f s", time.Since(begin).Seconds())
			return s.awaitHealthy(ctx, w)
		}},
		s.tearDown(),
	)
	return Scenario{Name: "expire", Summary: fmt.Sprintf("%d nodes that may live for %s", nodes, life), Steps: steps}
}

// emptyNodes is a workload of which most goes at once.
func emptyNodes() Scenario {
	const nodes, kept = 50, 10
	const within = 2 * time.Minute // what it takes is noted
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(nodes))
	s.pool["BUDGET"] = "100%"
	steps := append(s.setUp(),
		s.fill(nodes, nodes, 0),
		Step{Name: fmt.Sprintf("%d pods are left: the %d empty nodes go within %v, and no pod is moved", kept, nodes-kept, within), Timeout: within, Run: func(ctx context.Context, w *World) error {
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
					return fmt.Errorf("%d instances are there, %d are wanted", n, kept)
				}
				return nil
			})
			if err != nil {
				return err
			}
			w.Note("the last of %d instances was told to end after %.1f s", nodes-kept, time.Since(begin).Seconds())
			now, err := runningPodUIDs(ctx, w, frontApp)
			if err != nil {
				return err
			}
			for id := range left {
				if !now[id] {
					return fmt.Errorf("pod %s was moved", id)
				}
			}
			return s.awaitHealthy(ctx, w)
		}},
		Step{Name: "pods that come back while nodes end get others, and none is ended under them", Timeout: 2 * time.Minute, Run: func(ctx context.Context, w *World) error {
			for n := range 6 {
				if err := s.scale(ctx, w, nodes/2, 0); err != nil {
					return err
				}
				if err := s.scale(ctx, w, kept, 0); err != nil {
					return err
				}
				// Nodes become empty for as long as it takes until they count as empty, and a little more or less.
				if err := pause(ctx, time.Duration(500+300*n)*time.Millisecond); err != nil {
					return err
				}
			}
			if err := s.scale(ctx, w, nodes/2, 0); err != nil {
				return err
			}
			return s.awaitHealthy(ctx, w)
		}},
		s.tearDown(),
	)
	return Scenario{Name: "empty-fast", Summary: fmt.Sprintf("%d nodes of which %d become empty at once", nodes, nodes-kept), Steps: steps}
}
