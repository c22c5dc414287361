package replace

import (
	"cmp"
	"fmt"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// UnplaceablePodsDelay sets how long the repair of a node that is not Ready waits for room for pods of its own that fit nowhere.
// Such a node does not run them, so keeping it longer saves nothing, and its instance costs money.
const UnplaceablePodsDelay = 30 * time.Minute

// RepairSearch evaluates repairs.
type RepairSearch struct {
	View      *disrupt.View
	Remaining *disrupt.RemainingBudgets
	// Breaker holds repairs back where too many nodes are unhealthy.
	Breaker *repair.Breaker
	Budget  schedule.Budget // of each simulation
	// Reboots is false if nodes are replaced where a policy states to reboot them.
	Reboots bool
	// Freed lets nodes in full capacity reservations be terminated first; nil if they may not.
	Freed *FreedSlots
}

// HeldBack is a node that is due for repair, and why it is not repaired in this pass.
type HeldBack struct {
	Candidate *disrupt.Candidate
	// Breaker is set if too many nodes are unhealthy; otherwise Message states why.
	Breaker *repair.Block
	Message string
	// Simulated is true if a simulation found no room for the pods.
	Simulated bool
}

// Evaluate returns the command that repairs a node, or why it is held back. A node that is not initialized neither needs
// nor uses a budget. In a dynamic pool all pods of the node must fit elsewhere, which costs one simulation; a static
// pool replaces the node one for one.
func (s *RepairSearch) Evaluate(p func() *schedule.Problem, c *disrupt.Candidate) (*disrupt.Command, *HeldBack) {
	if why, blocked := s.Breaker.Blocks(c.Node.Name, c.Node.Pool, c.Zone, s.View.Snapshot.Now); blocked {
		return nil, &HeldBack{Candidate: c, Breaker: &why}
	}
	if c.Node.Initialized && s.Remaining.Remaining(c.Node.Pool) == 0 {
		return nil, &HeldBack{Candidate: c, Message: fmt.Sprintf("budgets of NodePool %q allow no further repair now", c.Node.Pool)}
	}
	cmd := &disrupt.Command{Reason: karpv1.DisruptionUnhealthy, Candidates: []*disrupt.Candidate{c}, Bound: c.Node.Repair.Bound}
	if c.Node.Repair.Action == karpv1.RepairReboot && s.Reboots {
		cmd.Reboot = true
		return cmd, nil
	}
	if replicas := c.Pool.Spec.Replicas; replicas != nil {
		if active, pending := disrupt.CountNodes(s.View.Snapshot, c.Pool.Name); active+pending > *replicas {
			return nil, &HeldBack{Candidate: c, Message: fmt.Sprintf("NodePool %q has more nodes than replicas and is scaled down first", c.Pool.Name)}
		}
		return cmd, nil
	}
	o := disrupt.EvaluateRepair(cmd.Candidates, p().WhatIf([]int{c.Index}, c.Pods, s.Budget))
	why := o.Why().Message
	if len(o.Unschedulable) > 0 {
		first, waits := s.Freed.Command(c, karpv1.DisruptionUnhealthy)
		if first != nil {
			return first, nil
		}
		why = cmp.Or(waits, why)
	}
	if why != "" && !mayLosePods(c, &o, s.View.Snapshot.Now) {
		return nil, &HeldBack{Candidate: c, Message: why, Simulated: true}
	}
	cmd.Plan, cmd.Savings = o.Plan, c.Price-disrupt.LaunchCost(o.Plan)
	return cmd, nil
}

// mayLosePods reports whether the node is removed although some of its pods fit nowhere: it does not run them, and room
// has not come for long.
func mayLosePods(c *disrupt.Candidate, o *disrupt.RemovalOutcome, now time.Time) bool {
	return len(o.SharedPending) == 0 && !c.Node.Ready && now.Sub(c.Node.Repair.EligibleAt) >= UnplaceablePodsDelay
}
