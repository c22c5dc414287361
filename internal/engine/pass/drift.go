package pass

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// drift replaces drifted nodes.
func (d *decider) drift() {
	candidates := d.free(d.view.Drifted(false /* static */))
	d.out.Stats.Drifted = len(candidates)
	d.noteHeld(karpv1.DisruptionDrifted, candidates)
	if d.moved() {
		return
	}
	d.out.Stats.Ran |= Drift
	d.replace(Drift, karpv1.DisruptionDrifted, d.replaceable(d.backoff.DriftOrder(candidates, d.Snapshot.Now), karpv1.DisruptionDrifted))
}

// replace replaces nodes in the order. A pass of the controller replaces one: the next, which follows at once, has a Snapshot of the
// capacity that is left.
func (d *decider) replace(work Work, reason karpv1.DisruptionReason, order []*disrupt.Candidate) {
	if len(order) == 0 {
		return
	}
	defer d.begin(work)()
	search := replace.DriftSearch{
		Reason: reason, Order: order, Remaining: d.budgets[reason], MaxRejections: d.Settings.MaxDriftRejections,
		Budget: schedule.DefaultBudget(), Freed: d.freedSlots(reason),
	}
	p := d.problem()
	defer p.RevertTo(p.AppliedPlans())
	for i := range d.out.Start { // nodes that go take no pods
		p.Apply(simulationOf(&d.out.Start[i].Command), &d.out.Start[i].Plan)
	}
	for range d.Settings.MaxDrift {
		cmd, left := replace.Drift(p, d.view, search)
		d.notReplaced(work, left)
		if cmd == nil {
			return
		}
		d.backoff.Started(cmd.Candidates[0].Pool.Name, d.Snapshot.Now)
		d.start(cmd)
		p.Apply(simulationOf(cmd), &cmd.Plan) // so that the next node's pods do not get the same room
		search.Order = slices.DeleteFunc(search.Order, func(c *disrupt.Candidate) bool { return d.taken[c.Node.ClaimUID] })
	}
}

// replaceable is the order without the nodes of pools that may replace none, and with those last that failed last.
func (d *decider) replaceable(order []*disrupt.Candidate, reason karpv1.DisruptionReason) []*disrupt.Candidate {
	blocked := map[string]bool{}
	order = slices.DeleteFunc(order, func(c *disrupt.Candidate) bool {
		pool := c.Node.Pool
		if _, known := blocked[pool]; !known {
			blocked[pool] = d.budgets[reason].Remaining(pool) == 0 || d.paused(c.Pool.Name, reason)
		}
		return blocked[pool]
	})
	slices.SortStableFunc(order, func(a, b *disrupt.Candidate) int { return cmp.Compare(d.inZone(a), d.inZone(b)) })
	slices.SortStableFunc(order, func(a, b *disrupt.Candidate) int {
		return d.memory.DriftFailed[a.Node.ClaimUID].Compare(d.memory.DriftFailed[b.Node.ClaimUID])
	})
	return order
}

// inZone counts the new nodes in the zone of a candidate, where its pool rolls out with canaries: they are spread over the zones.
func (d *decider) inZone(c *disrupt.Candidate) int {
	if l := d.limit(c.Pool.Name, karpv1.DisruptionDrifted); l != nil {
		return l.Zones[c.Node.Labels[corev1.LabelTopologyZone]]
	}
	return 0
}

// notReplaced lists nodes that cannot be replaced.
func (d *decider) notReplaced(work Work, left []disrupt.Unconsolidatable) {
	for _, k := range left {
		if d.memory.DriftFailed == nil {
			d.memory.DriftFailed = map[types.UID]time.Time{}
		}
		d.memory.DriftFailed[k.Candidate.Node.ClaimUID] = d.Snapshot.Now
		d.stay(Stay{Node: k.Candidate.Node, Why: k.Why, By: work})
	}
}

// simulationOf is the simulation that found the command.
func simulationOf(c *disrupt.Command) (out schedule.Simulation) {
	for _, candidate := range c.Candidates {
		out.Removed, out.Pods = append(out.Removed, candidate.Index), append(out.Pods, candidate.Pods...)
	}
	return out
}
