package replace

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// FreedSlots plans as if a node of a full capacity reservation had already finished. It compiles the snapshot once for each
// reservation that it is queried about, which costs as much as the first simulation of a pass.
type FreedSlots struct {
	View    *disrupt.View
	Compile func(*snapshot.Snapshot) *schedule.Problem
	Budget  schedule.Budget // of each simulation
	// Remaining are the budgets of the reason for which nodes go.
	Remaining *disrupt.RemainingBudgets

	reservations map[string]*freedSlot
}

// freedSlot is the cluster with one more free instance in a reservation.
type freedSlot struct {
	problem *schedule.Problem // nil if nothing can be launched into the reservation even then
	// waiting is a pending pod that would take the slot; nil if there is none.
	waiting *corev1.Pod
}

// of returns the cluster with a free slot in a reservation.
func (f *FreedSlots) of(id string) *freedSlot {
	if slot, known := f.reservations[id]; known {
		return slot
	}
	if f.reservations == nil {
		f.reservations = map[string]*freedSlot{}
	}
	slot := &freedSlot{}
	if s, ok := reservation.WithFreedSlot(f.View.Snapshot, id); ok {
		slot.problem = f.Compile(s)
		plan := slot.problem.WhatIf(nil, nil, f.Budget)
		slot.waiting = f.podFor(&plan, id)
	}
	f.reservations[id] = slot
	return slot
}

// podFor is a pod for which the plan launches a node into the reservation; nil if there is none.
func (f *FreedSlots) podFor(plan *schedule.Plan, id string) *corev1.Pod {
	for i := range plan.Launches {
		r := plan.Launches[i].Requirements.Get(f.View.Snapshot.Labels.ReservationID)
		if r.Operator() != corev1.NodeSelectorOpIn || !slices.Contains(r.Values(), id) {
			continue
		}
		for _, p := range plan.Launches[i].Pods {
			if !snapshot.IsVirtual(p) {
				return p
			}
		}
	}
	return nil
}

// Command returns the command that terminates a node first if its pods fit nowhere while it runs: they all must fit once
// its slot in a capacity reservation is free. It returns why that must wait; both results are empty if the node does not
// qualify. The command launches nothing: provisioning does, once the pods are pending.
//
// The pods of the node before come first: no node goes while a pending pod would take its slot.
func (f *FreedSlots) Command(c *disrupt.Candidate, reason karpv1.DisruptionReason) (*disrupt.Command, string) {
	if f == nil {
		return nil, ""
	}
	id := f.View.ReservationOf(c.Node)
	if id == "" || c.CapacityType != karpv1.CapacityTypeReserved {
		return nil, ""
	}
	slot := f.of(id)
	if slot.problem == nil {
		return nil, ""
	}
	if p := slot.waiting; p != nil {
		return nil, fmt.Sprintf("pod %s/%s waits for a free instance in capacity reservation %s", p.Namespace, p.Name, id)
	}
	o := f.evaluate(c, reason, slot.problem)
	if len(o.Unschedulable) > 0 {
		return nil, ""
	}
	if why := o.Why().Message; why != "" {
		return nil, why
	}
	cmd := &disrupt.Command{
		Reason: reason, Candidates: []*disrupt.Candidate{c}, Savings: c.Price - disrupt.LaunchCost(o.Plan),
		TerminateFirst: disrupt.NoReservedCapacity,
		Plan:           schedule.Plan{Placements: o.Plan.Placements, Stats: o.Plan.Stats},
	}
	if reason == karpv1.DisruptionUnhealthy {
		cmd.Bound = c.Node.Repair.Bound
	}
	for i := range o.Plan.Launches {
		cmd.RefillPools = append(cmd.RefillPools, o.Plan.Launches[i].Pool.Name)
	}
	slices.Sort(cmd.RefillPools)
	cmd.RefillPools = slices.Compact(cmd.RefillPools)
	return f.onceProven(cmd)
}

func (f *FreedSlots) evaluate(c *disrupt.Candidate, reason karpv1.DisruptionReason, p *schedule.Problem) disrupt.RemovalOutcome {
	plan := p.WhatIf([]int{c.Index}, c.Pods, f.Budget)
	if reason == karpv1.DisruptionUnhealthy {
		return disrupt.EvaluateRepair([]*disrupt.Candidate{c}, plan)
	}
	return disrupt.EvaluateRemoval(f.View.Snapshot, []*disrupt.Candidate{c}, plan)
}

// onceProven holds a command back until the nodes launched instead of earlier ones are up. In flight are reserved nodes
// of the pools concerned that start or end.
func (f *FreedSlots) onceProven(cmd *disrupt.Command) (*disrupt.Command, string) {
	c := cmd.Candidates[0]
	pools := append([]string{c.Node.Pool}, cmd.RefillPools...)
	inFlight := 0
	for i := range f.View.Snapshot.Nodes {
		n := &f.View.Snapshot.Nodes[i]
		if n != c.Node && n.Claim != "" && slices.Contains(pools, n.Pool) && f.View.HoldsReservation(n) &&
			(n.Deleting || n.Disrupting || !n.Initialized) {
			inFlight++
		}
	}
	for _, pool := range cmd.RefillPools {
		if inFlight >= mayBeMissing(f.View, cmd, pool, f.Remaining) {
			return nil, refillMessage(pool)
		}
	}
	return cmd, ""
}

// refillMessage returns why a node must wait before it is terminated first.
func refillMessage(pool string) string {
	return fmt.Sprintf("no other node is terminated first until the node of NodePool %q that was launched instead of the last one is initialized", pool)
}

// mayBeMissing returns how many nodes may be missing at once to terminate a node first. Until a node of the pool has come up
// that was launched after the reason for the termination came about, and that does not have to go as well, it is one: a
// new image may not boot, and then one node is lost. From then on it is what the budgets allow.
func mayBeMissing(v *disrupt.View, cmd *disrupt.Command, pool string, room *disrupt.RemainingBudgets) int {
	c := cmd.Candidates[0]
	since := c.Node.DriftedAt
	if cmd.Reason == karpv1.DisruptionUnhealthy {
		since = c.Node.Repair.EligibleAt
	}
	for i := range v.Snapshot.Nodes {
		if n := &v.Snapshot.Nodes[i]; n.Pool == pool && n.Claim != "" && provenSince(n, since) {
			return max(1, room.Allowed(c.Node.Pool))
		}
	}
	return 1
}

// provenSince reports whether a node that works was launched after a time.
func provenSince(n *snapshot.Node, since time.Time) bool {
	return n.Initialized && n.Ready && !n.Deleting && !n.Disrupting && !n.Rebooting && !n.Unhealthy && n.DriftedAt.IsZero() &&
		n.CreatedAt.After(since)
}
