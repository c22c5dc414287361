package pass

import (
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// empty finds empty nodes, as many as the budgets allow.
func (d *decider) empty() {
	defer d.begin(Empty)()
	empty, _ := d.view.Empty()
	d.out.Stats.Empty = len(empty)
	for _, c := range d.free(empty) {
		one := []*disrupt.Candidate{c}
		if !d.budgets[karpv1.DisruptionEmpty].Allow(one) {
			d.stay(Stay{Node: c.Node, By: Empty, Why: disrupt.Why{
				Reason: disrupt.EmptyOverBudget, Message: "the node is empty, and a budget of its NodePool holds it back for now",
			}})
			continue
		}
		d.found(&disrupt.Command{Reason: karpv1.DisruptionEmpty, ConsolidationType: disrupt.TypeEmpty, Candidates: one, Savings: c.Price})
	}
}

// found proposes a command that saves money, or starts it in a pass without validation. Until it starts, no other command includes its
// nodes.
func (d *decider) found(c *disrupt.Command) {
	if !d.Settings.Validate {
		d.start(c)
		return
	}
	d.out.Propose = append(d.out.Propose, d.decision(c))
	d.take(c.Candidates)
	d.memory.Proposals = append(d.memory.Proposals, Propose(c, d.Snapshot.Now.Add(d.Settings.ValidationDelay)))
}
