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

// spotInterruption are spot instances that EC2 takes back.
func spotInterruption() Scenario {
	const nodes, reclaimed = 10, 3
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(nodes)) // EC2 knows no budget
	s.pool["CAPACITY_TYPE"] = "spot"
	var taken []awsim.Instance
	var warned time.Time // on the account's clock
	steps := append([]Step{{Name: "have EventBridge tell a queue what happens to instances", Timeout: time.Second, Run: func(_ context.Context, w *World) error {
		return w.EnableInterruptionQueue()
	}}}, s.setUp()...)
	steps = append(steps,
		s.fill(nodes, nodes, 0),
		Step{Name: fmt.Sprintf("EC2 warns that it takes back %d instances in two minutes: their pods run elsewhere before", reclaimed), Timeout: simec2.SpotNotice, Run: func(ctx context.Context, w *World) error {
			s.invariants.lift()
			begin := time.Now()
			warned = w.AWS.Now()
			taken = w.Running()[:reclaimed]
			for _, i := range taken {
				if err := w.AWS.EC2().Reclaim(i.ID); err != nil {
					return err
				}
			}
			if err := errors.Join(awaitStopped(ctx, w, taken), s.awaitPods(ctx, w), awaitPaired(ctx, w)); err != nil {
				return err
			}
			w.Note("all pods ran again after %.1f s", time.Since(begin).Seconds())
			return nil
		}},
		Step{Name: "what was taken back was not bought again", Timeout: time.Second, Run: func(_ context.Context, w *World) error {
			for _, i := range w.Running() {
				if slices.ContainsFunc(taken, func(t awsim.Instance) bool { return i.LaunchedAt.After(warned) && i.Type == t.Type && i.Zone == t.Zone }) {
					return fmt.Errorf("instance %s is another %s in %s", i.ID, i.Type, i.Zone)
				}
			}
			return nil
		}},
		Step{Name: "EC2 recommends to leave an instance: it stays; it plans to retire another: it is replaced", Timeout: time.Minute, Run: func(ctx context.Context, w *World) error {
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
				return fmt.Errorf("instance %s has gone", stays.ID)
			}
			return s.invariants.check(w)
		}},
		s.tearDown(),
	)
	return Scenario{Name: "spot-interruption", Summary: fmt.Sprintf("EC2 takes back %d of %d spot instances, and retires one", reclaimed, nodes), Steps: steps}
}

// ended waits until none of the instances costs money any more.
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
