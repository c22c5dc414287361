package pass

import (
	"maps"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// PlannedCosts are what the nodes of pools cost, in $/h, once all commands have finished that have begun or that the pass has decided. It
// costs a pass over nodes.
func (d *Decisions) PlannedCosts() map[string]float64 {
	out := maps.Clone(d.Costs)
	for i := range d.View.Snapshot.Nodes {
		n := &d.View.Snapshot.Nodes[i]
		if price, priced := d.View.PriceOf(n); priced && (n.Deleting || n.Disrupting) {
			out[n.Pool] -= price
		}
	}
	for _, decided := range [][]Decision{d.Start, d.Propose} {
		for i := range decided {
			carryOut(&decided[i].Command, d.View, out)
		}
	}
	return out
}

// carryOut changes the costs of pools by a command.
func carryOut(c *disrupt.Command, v *disrupt.View, costs map[string]float64) {
	if c.Reboot {
		return
	}
	for _, removed := range c.Candidates {
		if price, priced := v.PriceOf(removed.Node); priced {
			costs[removed.Node.Pool] -= price
		}
	}
	for i := range c.Plan.Launches {
		costs[c.Plan.Launches[i].Pool.Name] += c.Plan.Launches[i].Offering.Price
	}
}
