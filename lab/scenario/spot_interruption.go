package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	simec2 "github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// spotInterruption interrupts spot instances.
func spotInterruption() Scenario {
	const nodes, reclaimed = 10, 3
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(nodes)) // interruption ignores budgets
	s.pool["CAPACITY_TYPE"] = "spot"
	var interrupted []awsim.Instance
	var warned time.Time // on the account's clock
	steps := append(
		[]Step{
			{
				Name:    "route EventBridge events of instances to the interruption queue",
				Timeout: time.Second,
				Run: func(_ context.Context, w *World) error {
					return w.EnableInterruptionQueue()
				},
			},
		},
		s.setUp()...)
	steps = append(
		steps,
		s.fill(nodes, nodes, 0),
		Step{
			Name: fmt.Sprintf(
				"EC2 sends interruption warnings for %d instances: their pods run on other nodes within the two minutes",
				reclaimed,
			),
			Timeout: simec2.SpotNotice, Exact: true,
			Run: func(ctx context.Context, w *World) error {
				s.invariants.lift()
				begin := time.Now()
				warned = w.AWS.Now()
				interrupted = w.Running()[:reclaimed]
				for _, i := range interrupted {
					if err := w.AWS.EC2().Reclaim(i.ID); err != nil {
						return err
					}
				}
				if err := errors.Join(awaitStopped(ctx, w, interrupted), s.awaitPods(ctx, w), awaitPaired(ctx, w)); err != nil {
					return err
				}
				w.Note("all pods ran again after %.1f s", time.Since(begin).Seconds())
				return nil
			},
		},
		Step{
			Name:    "no replacement has an interrupted instance's type and zone",
			Timeout: time.Second,
			Run: func(_ context.Context, w *World) error {
				for _, i := range w.Running() {
					if slices.ContainsFunc(
						interrupted,
						func(t awsim.Instance) bool { return i.LaunchedAt.After(warned) && i.Type == t.Type && i.Zone == t.Zone },
					) {
						return fmt.Errorf("instance %s is another %s in %s", i.ID, i.Type, i.Zone)
					}
				}
				return nil
			},
		},
		Step{
			Name:    "a rebalance recommendation leaves an instance running; a planned retirement replaces another",
			Timeout: time.Minute,
			Run: func(ctx context.Context, w *World) error {
				live := w.Running()
				stays, goes := live[0], live[1]
				if err := w.AWS.EC2().RecommendRebalance(stays.ID); err != nil {
					return err
				}
				if _, err := awaitEventMessage(ctx, w, "NodeClaim", stays.Tags[world.NodeClaimTag], "SpotRebalanceRecommendation"); err != nil {
					return err
				}
				if err := w.AWS.EC2().PlanEvent("instance-retirement", w.AWS.Now().Add(24*time.Hour), goes.ID); err != nil {
					return err
				}
				if err := errors.Join(awaitStopped(ctx, w, []awsim.Instance{goes}), s.awaitPods(ctx, w), awaitPaired(ctx, w)); err != nil {
					return err
				}
				if !slices.ContainsFunc(w.Running(), func(i awsim.Instance) bool { return i.ID == stays.ID }) {
					return fmt.Errorf("instance %s was terminated", stays.ID)
				}
				return s.invariants.check(w)
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name:    "spot-interruption",
		Summary: fmt.Sprintf("EC2 interrupts %d of %d spot instances, and retires one", reclaimed, nodes),
		Steps:   steps,
	}
}

// awaitStopped waits until none of the instances is pending or running.
func awaitStopped(ctx context.Context, w *World, instances []awsim.Instance) error {
	return world.Until(ctx, func() error {
		for _, i := range w.Running() {
			if slices.ContainsFunc(instances, func(e awsim.Instance) bool { return e.ID == i.ID }) {
				return fmt.Errorf("instance %s is %s", i.ID, i.State)
			}
		}
		return nil
	})
}
