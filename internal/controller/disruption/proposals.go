package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// proposal is a command that must stay valid until it is due.
type proposal struct {
	cmd *disrupt.Command
	due time.Time
}

// propose keeps a command until it is due. Until then no other command includes its nodes.
func (l *Loop) propose(r *passState, cmd *disrupt.Command) {
	l.proposals = append(l.proposals, proposal{cmd, l.Now().Add(l.ValidationDelay)})
	if cmd.Reason == karpv1.DisruptionEmpty {
		r.use(cmd.Candidates) // the record has them together
		return
	}
	r.take(cmd.Candidates)
}

// executeDue starts the proposals that are due and still valid, and drops the invalid ones. The others keep their
// nodes.
func (l *Loop) executeDue(ctx context.Context, r *passState) error {
	now := l.Now()
	proposals := l.proposals
	l.proposals = nil
	empty := &disrupt.Command{Reason: karpv1.DisruptionEmpty, ConsolidationType: "empty"}
	nowEmpty, _ := r.Empty()
	var errs []error
	var moves []*disrupt.Command
	for _, p := range proposals {
		due := !p.due.After(now) && (!r.moved || p.cmd.Reason == karpv1.DisruptionEmpty) // the snapshot is of before a repair
		var fresh *disrupt.Command
		var failed *consolidate.Invalid
		switch {
		case p.cmd.Reason == karpv1.DisruptionEmpty:
			if fresh, failed = l.refresh(r, p.cmd, nowEmpty, due); due {
				r.recordConfirm(p.cmd, failed)
			}
		default:
			if fresh, failed = l.refresh(r, p.cmd, r.Candidates, due); failed == nil && due {
				fresh, failed = l.dropChangedCandidates(fresh)
			}
		}
		if failed != nil {
			l.reject(p.cmd, failed)
			continue
		}
		r.take(fresh.Candidates)
		switch {
		case !due:
			l.proposals = append(l.proposals, p)
		case p.cmd.Reason == karpv1.DisruptionEmpty:
			empty.Candidates, empty.Savings = append(empty.Candidates, fresh.Candidates...), empty.Savings+fresh.Savings
		default:
			moves = append(moves, fresh)
		}
	}
	if len(empty.Candidates) > 0 {
		errs = append(errs, l.deleteEmpty(ctx, r, empty))
	}
	return errors.Join(append(errs, l.executeConsolidations(ctx, r, moves))...)
}

// overBudget is a reason of consolidate.Invalid besides those of that package.
const overBudget = "budget"

// refresh replaces the candidates of a command by their current state, from the list now. A command that is due must
// fit the budgets, too.
func (l *Loop) refresh(
	r *passState,
	cmd *disrupt.Command,
	now []*disrupt.Candidate,
	due bool,
) (*disrupt.Command, *consolidate.Invalid) {
	fresh := *cmd
	fresh.Candidates = nil
	for _, c := range cmd.Candidates {
		at := slices.IndexFunc(now, func(n *disrupt.Candidate) bool { return n.Node.ClaimUID == c.Node.ClaimUID })
		if at < 0 {
			why := &consolidate.Invalid{Kind: consolidate.Churn, Message: fmt.Sprintf("node %s is no longer a candidate", c.Node.Name)}
			if slices.ContainsFunc(r.BlockedNodes, func(k disrupt.Blocked) bool {
				return k.Node.ClaimUID == c.Node.ClaimUID && k.Reason == disrupt.Nominated
			}) {
				why.Kind = overBudget
			}
			return nil, why
		}
		if r.taken[c.Node.ClaimUID] {
			return nil, &consolidate.Invalid{Kind: consolidate.Churn, Message: fmt.Sprintf("node %s is being repaired", c.Node.Name)}
		}
		fresh.Candidates = append(fresh.Candidates, now[at])
	}
	for i := range cmd.Plan.Launches {
		if l := &cmd.Plan.Launches[i]; !r.stillLaunches(l.Pool) {
			return nil, &consolidate.Invalid{
				Kind:    consolidate.Scheduling,
				Message: fmt.Sprintf("NodePool %q launches other nodes now", l.Pool.Name),
			}
		}
	}
	if due && !r.budgets[cmd.Reason].Allow(fresh.Candidates) {
		return nil, &consolidate.Invalid{Kind: overBudget, Message: "the budgets no longer allow it"}
	}
	return &fresh, nil
}

// dropChangedCandidates removes the nodes that pods have come to or left since from a command that is due. This is
// possible only while each node can be deleted without the others: not for a command with replacements, which are for
// all of its nodes, nor for one that a pool has scored as a whole.
func (l *Loop) dropChangedCandidates(cmd *disrupt.Command) (*disrupt.Command, *consolidate.Invalid) {
	independent := replacementCount(cmd) == 0 && len(cmd.Verdicts) == 0
	var out disrupt.Command
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
	l.Metrics.FailedValidations.WithLabelValues(cmd.ConsolidationType).Add(float64(len(cmd.Candidates) - len(out.Candidates)))
	out.ID, out.Reason, out.ConsolidationType, out.Plan = cmd.ID, cmd.Reason, cmd.ConsolidationType, cmd.Plan
	return &out, nil
}

// stillLaunches reports whether the pool still has the same template.
func (r *passState) stillLaunches(pool *karpv1.NodePool) bool {
	return slices.ContainsFunc(r.Snapshot.Pools, func(p snapshot.Pool) bool {
		return p.NodePool.UID == pool.UID && (p.NodePool == pool || equality.Semantic.DeepEqual(p.NodePool.Spec.Template, pool.Spec.Template))
	})
}

// reject drops a command that became invalid before it was due.
func (l *Loop) reject(cmd *disrupt.Command, why *consolidate.Invalid) {
	l.Metrics.FailedValidations.WithLabelValues(cmd.ConsolidationType).Add(float64(len(cmd.Candidates)))
	if cmd.Reason == karpv1.DisruptionEmpty {
		return
	}
	l.Recorder.Step(recorder.Step{Decision: cmd.ID, What: recorder.StepRejected, Message: why.Message})
	l.Log.Debug("consolidation rejected", "command", describeNodes(cmd), "kind", why.Kind, "why", why.Message)
	for _, c := range cmd.Candidates {
		l.onNodeAndClaim(c.Node, func(o event.Object) {
			l.Events.Normal(
				o,
				"ConsolidationRejected",
				"Consolidation rejected: %s, reason: %s (savings: $%.2f)",
				describePart(cmd, c),
				why.Kind,
				cmd.Savings,
			)
		})
	}
}

// executeConsolidations validates commands that save money against the snapshot, and starts the valid ones.
func (l *Loop) executeConsolidations(ctx context.Context, r *passState, commands []*disrupt.Command) error {
	if len(commands) == 0 {
		return nil
	}
	problem := r.compiled()
	defer problem.Revert()
	var errs []error
	for _, cmd := range commands {
		err := consolidate.Recheck(problem, r.Snapshot, cmd, l.Consolidation)
		l.recordRecheck(r, cmd, err)
		if invalid := (*consolidate.Invalid)(nil); errors.As(err, &invalid) {
			l.reject(cmd, invalid)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, l.execute(ctx, r, cmd))
	}
	return errors.Join(errs...)
}

// maxParallelDeletions is how many empty nodes are deleted in parallel: each takes about six sequential calls.
const maxParallelDeletions = 10

// deleteEmpty deletes empty nodes independently: an error with one does not affect the others. Logs and metrics show
// one command; its ID is the prefix of the nodes' command IDs.
func (l *Loop) deleteEmpty(ctx context.Context, r *passState, all *disrupt.Command) error {
	id := l.ID()
	idOf := func(i int) string { return fmt.Sprintf("%s-%d", id, i) }
	l.recordEmpty(r, all, idOf)
	l.logCommand(all, id)
	outcomes := make([]error, len(all.Candidates))
	var starting errgroup.Group
	starting.SetLimit(maxParallelDeletions)
	for i, c := range all.Candidates {
		starting.Go(func() error {
			one := *all
			one.Candidates, one.Savings = []*disrupt.Candidate{c}, c.Price
			outcomes[i] = panics.Error(func() error { return l.start(ctx, &one, idOf(i)) })
			l.recordStart(idOf(i), outcomes[i])
			return nil
		})
	}
	_ = starting.Wait() // outcomes has the errors
	started := *all
	started.Candidates = nil
	var errs []error
	for i, c := range all.Candidates {
		err := outcomes[i]
		switch {
		case errors.Is(err, errPodsChanged):
			l.Metrics.FailedValidations.WithLabelValues(all.ConsolidationType).Inc()
		case err != nil:
			errs = append(errs, err)
		default:
			started.Candidates = append(started.Candidates, c)
			r.started++
		}
	}
	if len(started.Candidates) > 0 {
		r.moved = true
		l.countDecision(&started)
	}
	return errors.Join(errs...)
}

// proposeEmpty proposes to delete empty nodes, as many as the budgets allow.
func (l *Loop) proposeEmpty(_ context.Context, r *passState) error {
	l.noteMethodRun(methodEmptiness)
	began := l.Now()
	empty, _ := r.Empty()
	l.Metrics.EligibleNodes.WithLabelValues("empty").Set(float64(len(empty)))
	free := r.free(empty)
	claims := []string{}
	for _, c := range free {
		if one := []*disrupt.Candidate{c}; r.budgets[karpv1.DisruptionEmpty].Allow(one) {
			l.propose(r, &disrupt.Command{Reason: karpv1.DisruptionEmpty, ConsolidationType: "empty", Candidates: one, Savings: c.Price})
			claims = append(claims, c.Node.Claim)
		}
	}
	if len(free) > 0 {
		r.rec.Call(recorder.CallEmpty, nil, claims)
	}
	l.Metrics.Evaluation.WithLabelValues("empty", "empty").Observe(l.Now().Sub(began).Seconds())
	return nil
}
