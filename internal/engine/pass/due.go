package pass

import (
	"errors"
	"fmt"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// OverBudget is a kind of consolidate.Invalid besides those of that package: the budgets no longer allow the command.
const OverBudget consolidate.InvalidKind = "budget"

// due starts the proposals that are due and still valid, and drops the invalid ones. The others keep their nodes.
func (d *decider) due() {
	d.out.Stats.Ran |= Due
	proposals := d.memory.Proposals
	d.memory.Proposals = nil
	if len(proposals) == 0 {
		return
	}
	nowEmpty, _ := d.view.Empty()
	found := newResolver(d.Snapshot)
	var empty, moves []Decision
	for i := range proposals {
		p := &proposals[i]
		isEmpty := p.Reason == karpv1.DisruptionEmpty
		due := !p.Due.After(d.Snapshot.Now) && (!d.moved() || isEmpty) // the Snapshot is of before a repair
		list := d.view.Candidates
		if isEmpty {
			list = nowEmpty
		}
		cmd, invalid := d.refresh(found, p, list, due)
		if invalid == nil && due && !isEmpty {
			cmd, invalid = d.dropChangedCandidates(p, cmd)
		}
		if invalid != nil {
			d.out.Dropped = append(d.out.Dropped, Dropped{Proposal: *p, Nodes: len(p.Nodes), Why: invalid})
			continue
		}
		decision := d.decision(cmd)
		decision.Validated = true
		d.take(cmd.Candidates)
		switch {
		case !due:
			d.memory.Proposals = append(d.memory.Proposals, *p)
		case isEmpty:
			empty = append(empty, decision)
		default:
			moves = append(moves, decision)
		}
	}
	for i := range empty {
		d.startTaken(empty[i])
	}
	d.recheck(proposals, moves)
}

// refresh finds the command of a proposal in the Snapshot: the candidates from the list now. A command that is due must fit the budgets,
// too.
func (d *decider) refresh(
	found *resolver, p *Proposal, now []*disrupt.Candidate, due bool,
) (*disrupt.Command, *consolidate.Invalid) {
	var candidates []*disrupt.Candidate
	for _, n := range p.Nodes {
		at := slices.IndexFunc(now, func(c *disrupt.Candidate) bool { return c.Node.ClaimUID == n.UID })
		if at < 0 {
			why := &consolidate.Invalid{Kind: consolidate.Churn, Message: fmt.Sprintf("node %s is no longer a candidate", n.Name)}
			if slices.ContainsFunc(d.view.BlockedNodes, func(k disrupt.Blocked) bool {
				return k.Node.ClaimUID == n.UID && k.Reason == disrupt.Nominated
			}) {
				why.Kind = OverBudget
			}
			return nil, why
		}
		if d.taken[n.UID] {
			return nil, &consolidate.Invalid{Kind: consolidate.Churn, Message: fmt.Sprintf("node %s is being repaired", n.Name)}
		}
		candidates = append(candidates, now[at])
	}
	cmd, invalid := found.command(p, candidates)
	if invalid != nil {
		return nil, invalid
	}
	if due && !d.budgets[cmd.Reason].Allow(candidates) {
		return nil, &consolidate.Invalid{Kind: OverBudget, Message: "the budgets no longer allow it"}
	}
	return cmd, nil
}

// dropChangedCandidates removes the nodes that pods have come to or left since from a command that is due. This is possible only while each
// node can be deleted without the others: not for a command with replacements, which are for all of its nodes, nor for one that a pool has
// scored as a whole.
func (d *decider) dropChangedCandidates(p *Proposal, cmd *disrupt.Command) (*disrupt.Command, *consolidate.Invalid) {
	independent := cmd.Replacements() == 0 && len(cmd.Verdicts) == 0
	out := disrupt.Command{ID: cmd.ID, Reason: cmd.Reason, ConsolidationType: cmd.ConsolidationType, Plan: cmd.Plan}
	var failed *consolidate.Invalid
	for _, c := range cmd.Candidates {
		why, lately := consolidate.StillEligible(c)
		if why == "" {
			out.Candidates = append(out.Candidates, c)
			out.Savings += c.Price
			continue
		}
		failed = &consolidate.Invalid{Kind: consolidate.Churn, Message: fmt.Sprintf("node %s: %s", c.Node.Name, why)}
		if !lately || !independent {
			return nil, failed
		}
	}
	if failed == nil {
		return cmd, nil
	}
	if len(out.Candidates) == 0 {
		return nil, failed
	}
	d.out.Dropped = append(d.out.Dropped, Dropped{
		Proposal: *p, Part: true, Nodes: len(cmd.Candidates) - len(out.Candidates), Why: failed,
	})
	return &out, nil
}

// recheck validates commands that save money on the Snapshot, each beside those before it, and starts the valid ones.
func (d *decider) recheck(proposals []Proposal, commands []Decision) {
	if len(commands) == 0 {
		return
	}
	problem := d.problem()
	defer problem.RevertTo(problem.AppliedPlans())
	for i := range commands {
		c := &commands[i]
		err := consolidate.Recheck(problem, d.Snapshot, &c.Command, d.Settings.Consolidation)
		if err == nil {
			d.startTaken(*c)
			continue
		}
		invalid := (*consolidate.Invalid)(nil)
		if !errors.As(err, &invalid) {
			invalid = &consolidate.Invalid{Kind: consolidate.Scheduling, Message: err.Error()}
		}
		// No node is in two proposals; the first node of this one may have been dropped before.
		at := slices.IndexFunc(proposals, func(p Proposal) bool {
			return slices.ContainsFunc(p.Nodes, func(n ProposedNode) bool { return n.UID == c.Candidates[0].Node.ClaimUID })
		})
		d.out.Dropped = append(d.out.Dropped, Dropped{Proposal: proposals[at], Nodes: len(c.Candidates), Why: invalid})
	}
}
