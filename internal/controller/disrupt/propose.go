package disrupt

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// proposal is a command that must hold until it is due.
type proposal struct {
	cmd *disrupt.Command
	due time.Time
}

func (p *proposal) has(uid types.UID) bool {
	return slices.ContainsFunc(p.cmd.Candidates, func(c *disrupt.Candidate) bool { return c.Node.ClaimUID == uid })
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
	var errs []error
	empty := &disrupt.Command{Reason: karpv1.DisruptionEmpty, Kind: "empty"}
	nowEmpty, _ := r.Empty()
	for _, p := range proposals {
		due := !p.due.After(now)
		c := find(nowEmpty, p.cmd.Candidates[0].Node.ClaimUID)
		if c == nil || due && !r.rooms[karpv1.DisruptionEmpty].Holds([]*disrupt.Candidate{c}) {
			l.Metrics.FailedValidations.WithLabelValues(p.cmd.Kind).Inc()
			continue
		}
		r.take([]*disrupt.Candidate{c})
		if due {
			empty.Candidates, empty.Savings = append(empty.Candidates, c), empty.Savings+c.Price
			continue
		}
		l.proposals = append(l.proposals, p)
	}
	if len(empty.Candidates) > 0 {
		errs = append(errs, l.endEmpty(ctx, r, empty))
	}
	return errors.Join(errs...)
}

// endEmpty ends nodes that have nothing to do with each other: one that cannot be ended holds up no other.
func (l *Loop) endEmpty(ctx context.Context, r *round, all *disrupt.Command) error {
	l.count(all)
	var errs []error
	for _, c := range all.Candidates {
		one := *all
		one.Candidates, one.Savings = []*disrupt.Candidate{c}, c.Price
		err := l.start(ctx, &one)
		switch {
		case errors.Is(err, errSlipped):
			l.Metrics.FailedValidations.WithLabelValues(all.Kind).Inc()
		case err != nil:
			errs = append(errs, err)
		default:
			r.started++
		}
	}
	return errors.Join(errs...)
}

func find(candidates []*disrupt.Candidate, uid types.UID) *disrupt.Candidate {
	if i := slices.IndexFunc(candidates, func(c *disrupt.Candidate) bool { return c.Node.ClaimUID == uid }); i >= 0 {
		return candidates[i]
	}
	return nil
}

// proposeEmpty proposes to end empty nodes, as many as the budgets allow.
func (l *Loop) proposeEmpty(_ context.Context, r *round) error {
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
