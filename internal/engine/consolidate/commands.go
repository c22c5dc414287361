package consolidate

import (
	"cmp"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// The kinds of commands, as metrics name them.
const (
	Multi  = "multi"
	Single = "single"
)

// commands joins moves into commands, best first. Those that buy nothing are carried out at once, so they never wait for
// those that do.
func (x *search) commands() []disrupt.Command {
	var out []disrupt.Command
	for _, m := range append(x.joined(false), x.joined(true)...) {
		c := disrupt.Command{Reason: karpv1.DisruptionUnderutilized, Kind: Multi, Plan: m.plan, Savings: m.savings, Verdicts: m.verdicts}
		if len(m.gone) == 1 {
			c.Kind = Single
		}
		for _, n := range m.gone {
			c.Candidates = append(c.Candidates, n.Candidate)
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b disrupt.Command) int { return cmp.Compare(b.Savings*disturbs(&a), a.Savings*disturbs(&b)) })
	return out
}

func disturbs(c *disrupt.Command) float64 {
	total := 0.0
	for _, n := range c.Candidates {
		total += n.Cost
	}
	return total
}

// joined are the moves that buy something, or those that do not, as few as may be.
func (x *search) joined(buying bool) []*move {
	var moves []*move
	for _, m := range x.moves {
		if len(m.plan.Launches) > 0 == buying {
			moves = append(moves, m)
		}
	}
	slices.SortStableFunc(moves, func(a, b *move) int { return cmp.Compare(b.savings*a.cost(), a.savings*b.cost()) })
	size := groupSize(len(x.nodes))
	var out []*move
	for _, m := range moves {
		if k := slices.IndexFunc(out, func(o *move) bool { return len(o.gone)+len(m.gone) <= size && x.join(o, m) }); k < 0 {
			out = append(out, m)
		}
	}
	return out
}

// join makes one move of two, if all rules hold for both as one.
func (x *search) join(o, m *move) bool {
	gone := slices.Concat(o.gone, m.gone)
	for _, pair := range [...][2]*move{{o, m}, {m, o}} {
		for i := range pair[0].plan.Launches {
			l := &pair[0].plan.Launches[i]
			if slices.ContainsFunc(pair[1].gone, func(n *node) bool {
				return slices.ContainsFunc(l.InstanceTypes, func(it *catalog.InstanceType) bool {
					return it.Name == n.Type.Name && worst(it, l.Requirements) >= n.Price
				})
			}) {
				return false // what ends in one would be launched in the other
			}
		}
	}
	verdicts, approved := x.verdicts(gone, o.savings+m.savings)
	if !approved {
		return false
	}
	o.gone, o.savings, o.verdicts = gone, o.savings+m.savings, verdicts
	for _, pl := range m.plan.Placements {
		k := slices.IndexFunc(o.plan.Placements, func(have schedule.Placement) bool { return have.Node == pl.Node && have.Claim == pl.Claim })
		if k < 0 {
			o.plan.Placements = append(o.plan.Placements, pl)
			continue
		}
		have := &o.plan.Placements[k]
		have.Pods, have.Devices = slices.Concat(have.Pods, pl.Pods), slices.Concat(have.Devices, pl.Devices)
	}
	o.plan.Launches = append(o.plan.Launches, m.plan.Launches...)
	o.plan.Stats.HourlyCost += m.plan.Stats.HourlyCost
	o.plan.Stats.NodeCost += m.plan.Stats.NodeCost
	o.plan.Stats.Pods += m.plan.Stats.Pods
	return true
}
