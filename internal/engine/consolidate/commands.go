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
// those that do. Where a move is right only once another is made, for rules of topology, they stay in the order in which they were
// found, in which each is right after those before it.
func (x *search) commands() []disrupt.Command {
	moves := slices.Concat(x.joined(x.bought(false), len(x.moves)), x.joined(x.bought(true), len(x.moves)))
	slices.SortStableFunc(moves, better)
	if len(moves) > 1 && !x.apart(x.moves) && !x.hold(moves) {
		moves = x.joined(x.moves, 1)
	}
	var out []disrupt.Command
	for _, m := range moves {
		out = append(out, m.command())
	}
	return out
}

func (m *move) command() disrupt.Command {
	c := disrupt.Command{Reason: karpv1.DisruptionUnderutilized, Kind: Multi, Plan: m.plan, Savings: m.savings, Verdicts: m.verdicts}
	if len(m.gone) == 1 {
		c.Kind = Single
	}
	for _, n := range m.gone {
		c.Candidates = append(c.Candidates, n.Candidate)
	}
	return c
}

// rejections are the moves that pools have not approved of, as far as they are told.
func (x *search) rejections() []disrupt.Command {
	var out []disrupt.Command
	for _, n := range x.nodes {
		if m := x.rejected[n]; m != nil && !n.ends {
			out = append(out, m.command())
		}
	}
	if x.several != nil && !slices.ContainsFunc(x.result.Commands, func(c disrupt.Command) bool { return len(c.Candidates) > 1 }) {
		out = append(out, x.several.command())
	}
	return out
}

// better puts moves first that save more for what they disturb.
func better(a, b *move) int { return cmp.Compare(b.savings*a.cost(), a.savings*b.cost()) }

// bought are the moves that buy something, or those that do not, best first.
func (x *search) bought(something bool) []*move {
	moves := only(x.moves, func(m *move) bool { return len(m.plan.Launches) > 0 == something })
	slices.SortStableFunc(moves, better)
	return moves
}

// hold tells whether each move is right after those before it.
func (x *search) hold(moves []*move) bool {
	x.p.ReleaseTo(x.base)
	return !slices.ContainsFunc(moves, func(m *move) bool {
		promised := promises(m.plan.Launches)
		pods := unpromised(m.gone, promised)
		return len(x.asPlanned(m.gone, &m.plan, pods)) > 0 || x.fits(m.gone, &m.plan, nil, promised) != nil
	})
}

// joined joins moves, in their order, into as few as may be. Each is joined to one of the last few that came before.
func (x *search) joined(moves []*move, last int) []*move {
	size := groupSize(len(x.nodes))
	var out []*move
	for _, m := range moves {
		recent := out[max(0, len(out)-last):]
		if k := slices.IndexFunc(recent, func(o *move) bool { return len(o.gone)+len(m.gone) <= size && x.join(o, m) }); k < 0 {
			own := *m
			own.plan.Placements, own.plan.Launches = slices.Clone(m.plan.Placements), slices.Clone(m.plan.Launches)
			out = append(out, &own)
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
