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
)

// proposal is a command that must hold until it is due.
type proposal struct {
	cmd *disrupt.Command
	due time.Time
}

// propose remembers a command until it is due. Its nodes are spoken for until then.
func (l *Loop) propose(r *round, cmd *disrupt.Command) {
	l.proposals = append(l.proposals, proposal{cmd, l.Now().Add(l.Settle)})
	r.take(cmd.Candidates)
}

// carryOut starts the proposals that are due and still hold, and drops those that do not hold any more. The others go on
// speaking for their nodes.
func (l *Loop) carryOut(ctx context.Context, r *round) error {
	now := l.Now()
	proposals := l.proposals
	l.proposals = nil
	empty := &disrupt.Command{Reason: karpv1.DisruptionEmpty, Kind: "empty"}
	nowEmpty, _ := r.Empty()
	var errs []error
	var moves []*disrupt.Command
	for _, p := range proposals {
		due := !p.due.After(now)
		var fresh *disrupt.Command
		var failed *consolidate.Invalid
		switch {
		case p.cmd.Reason == karpv1.DisruptionEmpty:
			fresh, failed = l.renew(r, p.cmd, nowEmpty, due)
		default:
			if fresh, failed = l.renew(r, p.cmd, r.Candidates, due); failed == nil && due {
				fresh, failed = l.stillWanted(fresh)
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
		errs = append(errs, l.endEmpty(ctx, r, empty))
	}
	return errors.Join(append(errs, l.move(ctx, r, moves))...)
}

// The kinds of Invalid besides those of package consolidate.
const overBudget = "budget"

// renew brings a command up to date: its candidates as they are among now. One that is due must be within the budgets, too.
func (l *Loop) renew(r *round, cmd *disrupt.Command, now []*disrupt.Candidate, due bool) (*disrupt.Command, *consolidate.Invalid) {
	fresh := *cmd
	fresh.Candidates = nil
	for _, c := range cmd.Candidates {
		at := slices.IndexFunc(now, func(n *disrupt.Candidate) bool { return n.Node.ClaimUID == c.Node.ClaimUID })
		if at < 0 {
			why := &consolidate.Invalid{Kind: consolidate.Churn, Why: fmt.Sprintf("node %s is no candidate any more", c.Node.Name)}
			if slices.ContainsFunc(r.Kept, func(k disrupt.Kept) bool { return k.Node.ClaimUID == c.Node.ClaimUID && k.Reason == disrupt.Nominated }) {
				why.Kind = overBudget
			}
			return nil, why
		}
		fresh.Candidates = append(fresh.Candidates, now[at])
	}
	for i := range cmd.Plan.Launches {
		if l := &cmd.Plan.Launches[i]; !r.launches(l.Pool) {
			return nil, &consolidate.Invalid{Kind: consolidate.Scheduling, Why: fmt.Sprintf("NodePool %q launches other nodes now", l.Pool.Name)}
		}
	}
	if due && !r.rooms[cmd.Reason].Holds(fresh.Candidates) {
		return nil, &consolidate.Invalid{Kind: overBudget, Why: "the budgets allow it no more"}
	}
	return &fresh, nil
}

// stillWanted leaves out of a command that is due the nodes that pods have come to or gone from since, each of which goes without
// the others. What is bought is for all of them or none: with replacements they go together, and so they do where a pool has weighed
// them together.
func (l *Loop) stillWanted(cmd *disrupt.Command) (*disrupt.Command, *consolidate.Invalid) {
	alone := bought(cmd) == 0 && len(cmd.Verdicts) == 0
	var out disrupt.Command
	var failed *consolidate.Invalid
	for _, c := range cmd.Candidates {
		why, lately := consolidate.Wanted(c)
		if why == "" {
			out.Candidates = append(out.Candidates, c)
			out.Savings += c.Price
			continue
		}
		failed = &consolidate.Invalid{Kind: consolidate.Churn, Why: fmt.Sprintf("node %s: %s", c.Node.Name, why)}
		if !lately || !alone {
			return nil, failed
		}
	}
	if failed == nil {
		return cmd, nil
	}
	if len(out.Candidates) == 0 {
		return nil, failed
	}
	l.Metrics.FailedValidations.WithLabelValues(cmd.Kind).Add(float64(len(cmd.Candidates) - len(out.Candidates)))
	out.Reason, out.Kind, out.Plan = cmd.Reason, cmd.Kind, cmd.Plan
	return &out, nil
}

// launches tells whether a pool still launches what it did.
func (r *round) launches(pool *karpv1.NodePool) bool {
	return slices.ContainsFunc(r.Snapshot.Pools, func(p snapshot.Pool) bool {
		return p.NodePool.UID == pool.UID && (p.NodePool == pool || equality.Semantic.DeepEqual(p.NodePool.Spec.Template, pool.Spec.Template))
	})
}

// reject drops a command that did not hold until it was due.
func (l *Loop) reject(cmd *disrupt.Command, why *consolidate.Invalid) {
	l.Metrics.FailedValidations.WithLabelValues(cmd.Kind).Add(float64(len(cmd.Candidates)))
	if cmd.Reason == karpv1.DisruptionEmpty {
		return
	}
	l.Log.Debug("consolidation rejected", "command", movement(cmd), "kind", why.Kind, "why", why.Why)
	for _, c := range cmd.Candidates {
		l.onBoth(c.Node, func(o event.Object) {
			l.Events.Normal(o, "ConsolidationRejected", "Consolidation rejected: %s, reason: %s (savings: $%.2f)", part(cmd, c), why.Kind, cmd.Savings)
		})
	}
}

// move starts commands that save money, as far as they would still be found.
func (l *Loop) move(ctx context.Context, r *round, commands []*disrupt.Command) error {
	if len(commands) == 0 {
		return nil
	}
	problem := r.compiled()
	defer problem.Release()
	var errs []error
	for _, cmd := range commands {
		err := consolidate.Recheck(problem, r.Snapshot, cmd, l.Consolidation)
		if invalid := (*consolidate.Invalid)(nil); errors.As(err, &invalid) {
			l.reject(cmd, invalid)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, l.run(ctx, r, cmd))
	}
	return errors.Join(errs...)
}

// abreast is how many empty nodes are ended at a time: each takes half a dozen calls, one after the other.
const abreast = 10

// endEmpty ends nodes that have nothing to do with each other: one that cannot be ended holds up no other. To people they are one
// command, whose ID those of the nodes begin with.
func (l *Loop) endEmpty(ctx context.Context, r *round, all *disrupt.Command) error {
	id := l.ID()
	l.announce(all, id)
	outcomes := make([]error, len(all.Candidates))
	var starting errgroup.Group
	starting.SetLimit(abreast)
	for i, c := range all.Candidates {
		starting.Go(func() error {
			one := *all
			one.Candidates, one.Savings = []*disrupt.Candidate{c}, c.Price
			outcomes[i] = panics.Error(func() error { return l.start(ctx, &one, fmt.Sprintf("%s-%d", id, i)) })
			return nil
		})
	}
	_ = starting.Wait() // outcomes has what became of each
	started := *all
	started.Candidates = nil
	var errs []error
	for i, c := range all.Candidates {
		err := outcomes[i]
		switch {
		case errors.Is(err, errSlipped):
			l.Metrics.FailedValidations.WithLabelValues(all.Kind).Inc()
		case err != nil:
			errs = append(errs, err)
		default:
			started.Candidates = append(started.Candidates, c)
			r.started++
		}
	}
	if len(started.Candidates) > 0 {
		r.moved = true
		l.count(&started)
	}
	return errors.Join(errs...)
}

// proposeEmpty proposes to end empty nodes, as many as the budgets allow.
func (l *Loop) proposeEmpty(_ context.Context, r *round) error {
	l.hasTurn(emptiness)
	began := l.Now()
	empty, _ := r.Empty()
	l.Metrics.EligibleNodes.WithLabelValues("empty").Set(float64(len(empty)))
	for _, c := range r.free(empty) {
		if one := []*disrupt.Candidate{c}; r.rooms[karpv1.DisruptionEmpty].Holds(one) {
			l.propose(r, &disrupt.Command{Reason: karpv1.DisruptionEmpty, Kind: "empty", Candidates: one, Savings: c.Price})
		}
	}
	l.Metrics.Evaluation.WithLabelValues("empty", "empty").Observe(l.Now().Sub(began).Seconds())
	return nil
}
