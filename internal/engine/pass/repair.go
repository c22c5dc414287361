package pass

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// repair starts the first repair that is possible now, and reports why the nodes before it are not repaired.
func (d *decider) repair() {
	defer d.begin(Repair)()
	due, blocked := d.view.Unhealthy()
	d.out.Stats.Unhealthy = len(due)
	for _, b := range blocked {
		if b.Reason != disrupt.Nominated {
			d.stay(Stay{Node: b.Node, Why: b.Why, By: Repair})
		}
	}
	search := &replace.RepairSearch{
		View: d.view, Remaining: d.budgets[karpv1.DisruptionUnhealthy], Breaker: d.view.NewBreaker(due), Budget: schedule.DefaultBudget(),
		Freed: d.freedSlots(karpv1.DisruptionUnhealthy),
	}
	simulated := 0
	for _, c := range d.repairOrder(due) {
		if simulated == MaxSimulations {
			return
		}
		if d.backoff.BacksOff(c.Node.Pool, d.Snapshot.Now) ||
			d.paused(c.Pool.Name, karpv1.DisruptionUnhealthy) {
			continue
		}
		search.Reboots = d.Settings.Reboots && !d.Snapshot.Now.Before(d.memory.NoReboot[c.Node.ClaimUID])
		cmd, held := search.Evaluate(d.problem, c)
		if held == nil && cmd.Static() {
			cmd, held = d.stageRepair(cmd)
		}
		if held == nil {
			d.start(cmd)
			return
		}
		if held.Simulated {
			simulated++
		}
		d.stay(Stay{
			Node: held.Candidate.Node, Why: disrupt.Why{Message: held.Message}, By: Repair, Pool: held.Candidate.Pool, Breaker: held.Breaker,
		})
	}
}

// repairOrder is the order in which nodes are tried: those last of which it was lately not known whether they can be rebooted.
func (d *decider) repairOrder(due []*disrupt.Candidate) []*disrupt.Candidate {
	out := d.free(due)
	later := func(c *disrupt.Candidate) int {
		if d.Snapshot.Now.Before(d.memory.RepairLater[c.Node.ClaimUID]) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b *disrupt.Candidate) int { return later(a) - later(b) })
	return out
}

// stageRepair returns the command for a node of a static pool: the one that launches the replacement first if the pool has room for it,
// else the one that terminates the node first.
func (d *decider) stageRepair(cmd *disrupt.Command) (*disrupt.Command, *replace.HeldBack) {
	c := cmd.Candidates[0]
	hold := func(why string) (*disrupt.Command, *replace.HeldBack) {
		return nil, &replace.HeldBack{Candidate: c, Message: why}
	}
	if c.Pool.DeletionTimestamp != nil || !condition.IsTrue(c.Pool, condition.Ready) {
		return hold("static NodePool is not ready and cannot stage a replacement")
	}
	refill, why := d.staticRefill(c.Pool, karpv1.DisruptionUnhealthy)
	if why != "" {
		return hold(why)
	}
	first := refill.AtLimit
	if refill.Room.Exhausted() {
		first = refill.InReservation
	} else if d.stageable(refill, 1) > 0 {
		return cmd, nil
	}
	if cmd, why = first(c); cmd == nil {
		return hold(why)
	}
	return cmd, nil
}

// freedSlots prepares the search for nodes that free a slot for their own replacement; nil if no node may be terminated first.
func (d *decider) freedSlots(reason karpv1.DisruptionReason) *replace.FreedSlots {
	if !d.terminateFirst(reason) {
		return nil
	}
	return &replace.FreedSlots{
		View: d.view, Compile: consolidate.Compile, Budget: schedule.DefaultBudget(), Remaining: d.budgets[reason],
	}
}

func (d *decider) terminateFirst(reason karpv1.DisruptionReason) bool {
	return reason == karpv1.DisruptionDrifted && d.Settings.TerminateFirstDrift ||
		reason == karpv1.DisruptionUnhealthy && d.Settings.TerminateFirstRepair
}

// withoutExcluded returns the candidates that could be tainted.
func (d *decider) withoutExcluded(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	return slices.DeleteFunc(candidates, func(c *disrupt.Candidate) bool { return !d.memory.Excluded[c.Node.ClaimUID].IsZero() })
}
