package disrupt

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// UnplaceablePodsDelay is how long the repair of a node that is not Ready waits for room for pods of its own that fit nowhere.
// Such a node does not run them, so keeping it longer saves nothing, and its instance costs money.
const UnplaceablePodsDelay = 30 * time.Minute

// Unhealthy are the nodes that are due for repair and that nothing but budgets, the breaker or a lack of room keeps
// from it, in the order of their repair: by score, then by the cost of moving their pods. Blocked are the others that
// are due.
func (v *View) Unhealthy() (due []*Candidate, blocked []Blocked) {
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		if n.Repair == nil || n.Claim == "" || n.Disrupting || n.Deleting || n.Rebooting || !n.Registered {
			continue
		}
		if reason, message := v.repairBlocks(n); reason != "" {
			blocked = append(blocked, Blocked{n, reason, message})
			continue
		}
		due = append(due, v.repairCandidate(i))
	}
	slices.SortFunc(due, func(a, b *Candidate) int {
		return cmp.Or(cmp.Compare(b.Node.Repair.Score, a.Node.Repair.Score), cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Node.Name, b.Node.Name))
	})
	return due, blocked
}

// repairBlocks returns the first reason why a node that is due is not repaired; empty if there is none. The annotation
// do-not-disrupt of a Node does not protect it: that of its pods does, unless something bounds the drain.
func (v *View) repairBlocks(n *snapshot.Node) (Reason, string) {
	switch {
	case n.Unplannable != "":
		return Unplannable, n.Unplannable
	case n.Initialized && v.nominated(n):
		return Nominated, "node is nominated for a pending pod"
	case n.Pool == "":
		return NoLabel, fmt.Sprintf("node doesn't have required label (label=%s)", karpv1.LabelNodePool)
	case v.pools[n.Pool] == nil:
		return NoNodePool, fmt.Sprintf("nodepool not found (NodePool=%s)", n.Pool)
	case n.DoNotRepair != "":
		return DoNotRepair, fmt.Sprintf("repair is blocked through the %q annotation of %s", karpv1.AnnotationDoNotRepair, n.DoNotRepair)
	case n.Bounded || n.Repair.Bound != nil:
		return "", ""
	}
	if reason, message := v.podsBlock(n.Pods); reason != "" {
		return reason, message
	}
	if b := v.pdbs.exhausted(v.pdbs.podsPerPDB(n.Pods)); b != nil {
		return PDB, fmt.Sprintf("pdb prevents pod evictions (PDB=%s/%s)", b.Namespace, b.Name)
	}
	return "", ""
}

// repairCandidate is a candidate all of whose pods must be scheduled elsewhere, also those that cannot be evicted now.
func (v *View) repairCandidate(i int) *Candidate {
	c := v.candidate(i)
	c.Pods = nil
	for _, pod := range c.Node.Pods {
		if snapshot.Reschedulable(pod) {
			c.Pods = append(c.Pods, pod)
		}
	}
	return c
}

// RepairSearch evaluates repairs.
type RepairSearch struct {
	View      *View
	Remaining *RemainingBudgets
	// Breaker holds repairs back where too many nodes are unhealthy.
	Breaker *repair.Breaker
	Budget  schedule.Budget // of each simulation
	// Reboots is false if nodes are replaced where a policy says to reboot them.
	Reboots bool
	// Freed lets nodes in full capacity reservations be terminated first; nil if they may not.
	Freed *FreedSlots
}

// HeldBack is a node that is due for repair, and why it is not repaired in this pass.
type HeldBack struct {
	Candidate *Candidate
	// Breaker is set if too many nodes are unhealthy; otherwise Message says why.
	Breaker *repair.Block
	Message string
	// Simulated is true if a simulation found no room for the pods.
	Simulated bool
}

// Evaluate returns the command that repairs a node, or why it is held back. A node that is not initialized neither needs
// nor uses a budget. In a dynamic pool all pods of the node must fit elsewhere, which costs one simulation; a static
// pool replaces the node one for one.
func (s *RepairSearch) Evaluate(p func() *schedule.Problem, c *Candidate) (*Command, *HeldBack) {
	if why, blocked := s.Breaker.Blocks(c.Node.Name, c.Node.Pool, c.Zone, s.View.Snapshot.Now); blocked {
		return nil, &HeldBack{Candidate: c, Breaker: &why}
	}
	if c.Node.Initialized && s.Remaining.Remaining(c.Node.Pool) == 0 {
		return nil, &HeldBack{Candidate: c, Message: fmt.Sprintf("budgets of NodePool %q allow no further repair now", c.Node.Pool)}
	}
	cmd := &Command{Reason: karpv1.DisruptionUnhealthy, Candidates: []*Candidate{c}, Bound: c.Node.Repair.Bound}
	if c.Node.Repair.Action == karpv1.RepairReboot && s.Reboots {
		cmd.Reboot = true
		return cmd, nil
	}
	if replicas := c.Pool.Spec.Replicas; replicas != nil {
		if active, pending := countNodes(s.View.Snapshot, c.Pool.Name); active+pending > *replicas {
			return nil, &HeldBack{Candidate: c, Message: fmt.Sprintf("NodePool %q has more nodes than replicas and is scaled down first", c.Pool.Name)}
		}
		return cmd, nil
	}
	o := evaluate(cmd.Candidates, p().WhatIf([]int{c.Index}, c.Pods, s.Budget), nil)
	why := o.Message()
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
	cmd.Plan, cmd.Savings = o.Plan, c.Price-LaunchCost(o.Plan)
	return cmd, nil
}

// mayLosePods reports whether the node is removed although some of its pods fit nowhere: it does not run them, and room
// has not come for long.
func mayLosePods(c *Candidate, o *RemovalOutcome, now time.Time) bool {
	return len(o.SharedPending) == 0 && !c.Node.Ready && now.Sub(c.Node.Repair.EligibleAt) >= UnplaceablePodsDelay
}

// NewBreaker counts the nodes of pools for a breaker, with the nodes that are due.
func (v *View) NewBreaker(due []*Candidate) *repair.Breaker {
	b := repair.NewBreaker()
	for i := range v.Snapshot.Nodes {
		if n := &v.Snapshot.Nodes[i]; n.Pool != "" && n.Registered {
			b.Count(repair.Health{
				Pool: n.Pool, Zone: n.Labels[corev1.LabelTopologyZone], Unhealthy: n.Unhealthy,
				Repairing: n.Rebooting || n.Unhealthy && (n.Disrupting || n.Deleting),
			})
		}
	}
	for _, c := range due {
		b.NoteDue(c.Node.Name, c.Node.Pool, c.Node.Repair.EligibleAt)
	}
	return b
}
