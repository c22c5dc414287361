package pass

import (
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// savings searches for nodes that cost more than they are worth. The commands of one search do not conflict. Those of the next search could
// use the same free capacity, so a pass of the controller waits until the last ones have started or been dropped.
func (d *decider) savings() {
	if d.moved() || d.memory.proposes(karpv1.DisruptionUnderutilized) {
		return
	}
	d.out.Stats.Ran |= Savings
	if !d.Settings.Validate {
		d.search()
		return
	}
	fingerprint := d.view.Fingerprint(d.budgets[karpv1.DisruptionUnderutilized])
	now := d.Snapshot.Now
	switch {
	case fingerprint == d.memory.Search.Fingerprint && now.Before(d.memory.Search.RepeatAt()), d.Resting:
	case d.manyPending():
		d.out.Stats.Postponed = true
	default:
		found := d.search()
		if found.Interrupted {
			break
		}
		d.memory.PoolsFirst, d.memory.Search = found.Unexamined, Search{}
		if len(found.Commands) == 0 && !found.OverBudget && found.TimedOut == "" {
			d.memory.Search = Search{Fingerprint: fingerprint, At: now, Due: found.NextChange}
		}
	}
	d.settled = fingerprint == d.memory.Search.Fingerprint
}

// search searches, and proposes or starts what it finds.
func (d *decider) search() *consolidate.Result {
	defer d.begin(Savings)()
	room := d.budgets[karpv1.DisruptionUnderutilized]
	candidates := d.withoutExcluded(d.free(d.view.Candidates))
	settings := d.Settings.Consolidation
	if d.Settings.Validate {
		settings.PoolsFirst = d.memory.PoolsFirst
	}
	found := consolidate.Find(consolidate.Input{
		Problem: d.problem(), Snapshot: d.Snapshot, Candidates: candidates, Budgets: room.Allowances(),
		Totals: consolidate.PoolTotals(d.Snapshot, d.view.Candidates, d.out.Costs), Interrupt: d.countedInterrupt(),
	}, settings)
	if found.Interrupted {
		return &found
	}
	d.out.Stats.InterruptedAt = 0
	d.out.Stats.Searched, d.out.Found = len(candidates), &found
	leaving := map[string]bool{}
	for i := range d.out.Start {
		for _, c := range d.out.Start[i].Candidates {
			leaving[c.Node.Name] = true
		}
	}
	for i := range found.Commands {
		c := &found.Commands[i]
		toLeaving := slices.ContainsFunc(c.Plan.Placements, func(p plan.Placement) bool { return leaving[p.Node] })
		if !toLeaving && room.Allow(c.Candidates) {
			d.found(c)
		}
	}
	overBudget := map[*snapshot.Node]bool{}
	for i := range d.out.Stay {
		if d.out.Stay[i].By == Empty {
			overBudget[d.out.Stay[i].Node] = true
		}
	}
	for _, k := range found.Unconsolidatable {
		if overBudget[k.Candidate.Node] {
			continue // the reason that was found first is more exact
		}
		d.stay(Stay{Node: k.Candidate.Node, Why: k.Why, By: Savings})
	}
	return &found
}

// countedInterrupt is Input.Interrupt, with the number of the call kept.
func (d *decider) countedInterrupt() func() bool {
	if d.Interrupt == nil {
		return nil
	}
	return func() bool {
		d.out.Stats.InterruptedAt++
		return d.Interrupt()
	}
}

// manyPending reports whether many pods wait for nodes, and have not for long.
func (d *decider) manyPending() bool {
	switch {
	case len(d.Snapshot.Pods) < disrupt.ManyPending:
		d.memory.ManyPending = time.Time{}
		return false
	case d.memory.ManyPending.IsZero():
		d.memory.ManyPending = d.Snapshot.Now
	}
	return d.Snapshot.Now.Sub(d.memory.ManyPending) < disrupt.LongestPostponement
}
