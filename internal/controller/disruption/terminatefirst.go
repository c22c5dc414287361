package disruption

import (
	"context"
	"slices"
	"strings"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	staticpool "github.com/dovetail-k8s/dovetail/internal/engine/static"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// TerminateFirst are the feature gates TerminateFirstDrift and TerminateFirstRepair: nodes with replacements that cannot be
// launched first are terminated first.
//
// Nothing of it is kept in memory or written down. Whether another node may go is read off the nodes that exist: those
// launched instead of earlier ones must be initialized. A command has no replacements, so a process that dies before it
// deletes the claim leaves a command that the queue rolls back.
type TerminateFirst struct{ Drift, Repair bool }

func (t TerminateFirst) enabled(reason karpv1.DisruptionReason) bool {
	return reason == karpv1.DisruptionDrifted && t.Drift || reason == karpv1.DisruptionUnhealthy && t.Repair
}

// freedSlots prepares the search for nodes that free a slot for their own replacement; nil if the feature gate is off.
func (l *Loop) freedSlots(r *passState, reason karpv1.DisruptionReason) *replace.FreedSlots {
	if !l.TerminateFirst.enabled(reason) {
		return nil
	}
	return &replace.FreedSlots{View: r.View, Compile: r.compile, Budget: schedule.DefaultBudget(), Remaining: r.budgets[reason]}
}

// staticRefill prepares the decisions about a static pool.
func (l *Loop) staticRefill(
	ctx context.Context, r *passState, pool *karpv1.NodePool, reason karpv1.DisruptionReason,
) (*replace.StaticRefill, error) {
	room, err := l.State.ReservedRoom(ctx, pool)
	if err != nil {
		return nil, err
	}
	return &replace.StaticRefill{
		View: r.View, Reason: reason, Remaining: r.budgets[reason], Pool: pool, Limit: staticpool.Limit(pool), Room: room,
		Enabled: l.TerminateFirst.enabled(reason),
	}, nil
}

// replaceInStaticPool replaces drifted nodes of one static pool: those first with replacements that can be launched first.
func (l *Loop) replaceInStaticPool(ctx context.Context, r *passState, turn disrupt.StaticBatch) []error {
	refill, err := l.staticRefill(ctx, r, turn.Pool, karpv1.DisruptionDrifted)
	if err != nil {
		return []error{err}
	}
	if refill.Room.Exhausted() {
		all := slices.DeleteFunc(r.free(r.Drifted(true)), func(c *disrupt.Candidate) bool { return c.Pool.Name != turn.Pool.Name })
		return l.terminateStaticFirst(ctx, r, refill, refill.Sort(l.withoutBackedOff(all)), refill.InReservation)
	}
	granted, err := l.State.Reserve(ctx, turn.Pool, refill.Stageable(int64(len(turn.Candidates))))
	if err != nil {
		return []error{err}
	}
	if granted == 0 {
		return l.terminateStaticFirst(ctx, r, refill, turn.Candidates, refill.AtLimit)
	}
	var errs []error
	for _, c := range turn.Candidates[:granted] {
		r.take([]*disrupt.Candidate{c})
		errs = append(errs, l.execute(ctx, r, &disrupt.Command{Reason: karpv1.DisruptionDrifted, Candidates: []*disrupt.Candidate{c}}))
		l.State.Release(turn.Pool.Name)
	}
	return errs
}

// terminateStaticFirst executes the commands that decide returns, as far as budgets allow, and publishes why other nodes
// wait.
func (l *Loop) terminateStaticFirst(
	ctx context.Context, r *passState, refill *replace.StaticRefill, candidates []*disrupt.Candidate,
	decide func(*disrupt.Candidate) (*disrupt.Command, string),
) (errs []error) {
	for _, c := range candidates {
		if refill.Remaining.Remaining(c.Pool.Name) == 0 {
			break
		}
		cmd, why := decide(c)
		out := recorder.OutcomeRecord{Command: recorder.RecordCommand(cmd), Why: why}
		r.recordRefill(refill, c, refill.Room.Exhausted(), out)
		if cmd == nil {
			l.recordBlocked(c.Node, why)
			continue
		}
		r.take(cmd.Candidates)
		errs = append(errs, l.execute(ctx, r, cmd))
	}
	return errs
}

// countTerminateFirst counts a command that was started, if it terminates a node first.
func (l *Loop) countTerminateFirst(cmd *disrupt.Command) {
	if cmd.TerminateFirst != "" {
		l.Metrics.TerminateFirst.WithLabelValues(
			cmd.Candidates[0].Node.Pool, strings.ToLower(string(cmd.Reason)), string(cmd.TerminateFirst),
		).Inc()
	}
}
