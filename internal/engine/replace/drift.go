package replace

import (
	"cmp"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// DriftSearch describes what Drift searches, and how far.
type DriftSearch struct {
	// Reason is DisruptionDrifted, which the zero value stands for, or DisruptionExpired.
	Reason karpv1.DisruptionReason
	// Order are the nodes to replace, the next first.
	Order     []*disrupt.Candidate
	Remaining *disrupt.RemainingBudgets
	// MaxRejections is after how many nodes with pods that cannot be scheduled elsewhere the search stops.
	MaxRejections int
	Budget        schedule.Budget // of each simulation
	// Freed lets nodes in full capacity reservations be terminated first; nil if they may not.
	Freed *FreedSlots
}

// Drift finds the next node to replace, drifted or about to expire: the first in order that the budgets allow, and with pods that can all
// be scheduled elsewhere, if need be once it has freed its slot in a capacity reservation. Nil if there is none before
// MaxRejections of them, not counting those that the budgets block. Nodes with pods that cannot be scheduled are
// returned with the message. It costs one simulation per node that is tried, and a second one per node in a full
// reservation.
func Drift(p *schedule.Problem, v *disrupt.View, search DriftSearch) (*disrupt.Command, []disrupt.Unconsolidatable) {
	var left []disrupt.Unconsolidatable
	reason := cmp.Or(search.Reason, karpv1.DisruptionDrifted)
	for _, c := range search.Order {
		if !search.Remaining.Allow([]*disrupt.Candidate{c}) {
			continue
		}
		if len(left) == search.MaxRejections {
			break
		}
		o := disrupt.EvaluateRemoval(v.Snapshot, []*disrupt.Candidate{c}, p.WhatIf([]int{c.Index}, c.Pods, search.Budget))
		if why := o.Why(); why.Reason != "" {
			if len(o.Unschedulable) > 0 {
				cmd, waits := search.Freed.Command(c, reason)
				if cmd != nil {
					return cmd, left
				}
				if waits != "" {
					why = disrupt.Why{Reason: disrupt.ReservationWaits, Message: waits}
				}
			}
			left = append(left, disrupt.Unconsolidatable{Candidate: c, Why: why})
			continue
		}
		return &disrupt.Command{
			Reason:     reason,
			Candidates: []*disrupt.Candidate{c},
			Plan:       o.Plan,
			Savings:    c.Price - disrupt.LaunchCost(o.Plan),
		}, left
	}
	return nil, left
}
