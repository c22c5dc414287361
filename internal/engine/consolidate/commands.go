package consolidate

import (
	"cmp"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// The types of consolidation commands, as the label consolidation_type of metrics has them.
const (
	Multi  = "multi"
	Single = "single"
)

// commands merges moves into commands, best first. Commands without launches are carried out at once, so they never
// wait for those with launches. If a move is only valid after another, for rules of topology, the moves stay in the
// order in which they were found: each is valid after those before it.
func (x *search) commands() []disrupt.Command {
	moves := slices.Concat(x.mergeMoves(x.movesByLaunch(false), len(x.moves)), x.mergeMoves(x.movesByLaunch(true), len(x.moves)))
	slices.SortStableFunc(moves, compareMoves)
	if len(moves) > 1 && !x.independent(x.moves) && !x.validInOrder(moves) {
		moves = x.mergeMoves(x.moves, 1)
	}
	var out []disrupt.Command
	for _, m := range moves {
		out = append(out, m.command())
	}
	return out
}

func (m *move) command() disrupt.Command {
	c := disrupt.Command{
		Reason:            karpv1.DisruptionUnderutilized,
		ConsolidationType: Multi,
		Plan:              m.plan,
		Savings:           m.savings,
		Verdicts:          m.verdicts,
	}
	if len(m.removed) == 1 {
		c.ConsolidationType = Single
	}
	for _, n := range m.removed {
		c.Candidates = append(c.Candidates, n.Candidate)
	}
	return c
}

// rejectedCommands are the moves that pools of policy Balanced rejected, as far as they are reported.
func (x *search) rejectedCommands() []disrupt.Command {
	var out []disrupt.Command
	for _, n := range x.nodes {
		if m := x.rejected[n]; m != nil && !n.removed {
			out = append(out, m.command())
		}
	}
	if x.rejectedMulti != nil && !slices.ContainsFunc(x.result.Commands, func(c disrupt.Command) bool { return len(c.Candidates) > 1 }) {
		out = append(out, x.rejectedMulti.command())
	}
	return out
}

// compareMoves sorts moves by savings per disruption, most first.
func compareMoves(a, b *move) int {
	return cmp.Compare(b.savings*a.disruptionCost(), a.savings*b.disruptionCost())
}

// movesByLaunch are the moves with launches, or those without, best first.
func (x *search) movesByLaunch(withLaunches bool) []*move {
	moves := filtered(x.moves, func(m *move) bool { return len(m.plan.Launches) > 0 == withLaunches })
	slices.SortStableFunc(moves, compareMoves)
	return moves
}

// validInOrder reports whether each move is valid after those before it. It costs a few simulations per move.
func (x *search) validInOrder(moves []*move) bool {
	x.problem.RevertTo(x.pendingApplied)
	return !slices.ContainsFunc(moves, func(m *move) bool {
		onLaunch := launchPods(m.plan.Launches)
		pods := podsWithoutLaunch(m.removed, onLaunch)
		return len(x.placeAsPlanned(m.removed, &m.plan, pods)) > 0 || x.placeOnExisting(m.removed, &m.plan, nil, onLaunch) != nil
	})
}

// mergeMoves merges moves, in their order, into as few as it can, by first fit: each is merged into the first of the
// last few commands that takes it. It costs O(moves x last) checks.
func (x *search) mergeMoves(moves []*move, last int) []*move {
	size := groupSize(len(x.nodes))
	var out []*move
	for _, m := range moves {
		recent := out[max(0, len(out)-last):]
		if k := slices.IndexFunc(recent, func(o *move) bool { return len(o.removed)+len(m.removed) <= size && x.merge(o, m) }); k < 0 {
			own := *m
			own.plan.Placements, own.plan.Launches = slices.Clone(m.plan.Placements), slices.Clone(m.plan.Launches)
			out = append(out, &own)
		}
	}
	return out
}

// merge merges a move into another, if all rules hold for both as one.
func (x *search) merge(o, m *move) bool {
	removed := slices.Concat(o.removed, m.removed)
	for _, pair := range [...][2]*move{{o, m}, {m, o}} {
		for i := range pair[0].plan.Launches {
			l := &pair[0].plan.Launches[i]
			if slices.ContainsFunc(pair[1].removed, func(n *node) bool {
				return slices.ContainsFunc(l.InstanceTypes, func(it *catalog.InstanceType) bool {
					return it.Name == n.Type.Name && worstPrice(it, l.Requirements) >= n.Price
				})
			}) {
				return false // one removes a node that the other would launch
			}
		}
	}
	verdicts, approved := x.verdicts(removed, o.savings+m.savings)
	if !approved {
		return false
	}
	o.removed, o.savings, o.verdicts = removed, o.savings+m.savings, verdicts
	for _, pl := range m.plan.Placements {
		k := slices.IndexFunc(o.plan.Placements, func(p schedule.Placement) bool { return p.Node == pl.Node && p.Claim == pl.Claim })
		if k < 0 {
			o.plan.Placements = append(o.plan.Placements, pl)
			continue
		}
		merged := &o.plan.Placements[k]
		merged.Pods, merged.Devices = slices.Concat(merged.Pods, pl.Pods), slices.Concat(merged.Devices, pl.Devices)
	}
	o.plan.Launches = append(o.plan.Launches, m.plan.Launches...)
	o.plan.Stats.HourlyCost += m.plan.Stats.HourlyCost
	o.plan.Stats.NodeCost += m.plan.Stats.NodeCost
	o.plan.Stats.Pods += m.plan.Stats.Pods
	return true
}
