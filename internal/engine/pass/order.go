package pass

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Place is a place in the order in which a pass gives out what budgets allow: what goes for one place is not there for the next.
type Place struct {
	Work Work
	// Reason is that of the commands; empty for proposals, which have their own.
	Reason karpv1.DisruptionReason
	// Nodes are which nodes go, First is why they go before those of the next place. Both are in docs/disruption.md.
	Nodes, First string
}

// Order is the order of all that a pass does. There is one budget for it: a command uses up what the budgets of all reasons allow.
func Order() []Place {
	return []Place{
		{Repair, karpv1.DisruptionUnhealthy, "unhealthy nodes", "their pods do not run"},
		{
			held, "", "drifted and expiring nodes that have been held back for an hour",
			"nothing waits forever, however many nodes become empty meanwhile",
		},
		{Due, "", "empty and underutilized nodes that were found 15 s ago, and still are", "they hold room in the budget since then"},
		{Empty, karpv1.DisruptionEmpty, "empty nodes", "no pod moves for them, and they may be drifted or about to expire, too"},
		{Replicas, karpv1.DisruptionDrifted, "drifted nodes of static NodePools", "as the next, and they need no room on other nodes"},
		{Drift, karpv1.DisruptionDrifted, "drifted nodes", "somebody has edited what they should be"},
		{Expire, karpv1.DisruptionExpired, "nodes before their `expireAfter`, with the annotation `dovetail.sh/expiration`", "their time is limited"},
		{Savings, karpv1.DisruptionUnderutilized, "underutilized nodes", "they only cost money"},
	}
}

// run does the work of a place.
func (d *decider) run(w Work) {
	switch w {
	case Repair:
		d.repair()
	case held:
		d.heldBack()
	case Due:
		d.due()
	case Empty:
		d.empty()
	case Replicas:
		d.replicas()
	case Drift:
		d.drift()
	case Expire:
		d.expire()
	case Savings:
		d.savings()
	}
}
