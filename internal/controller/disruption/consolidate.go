package disruption

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

const (
	// again is after how long a search is repeated though nothing seems to have changed.
	again = 5 * time.Minute
	// unconsolidatableQuiet is for how long a node is not told the same reason again.
	unconsolidatableQuiet = 15 * time.Minute
)

// searching is for how long one search may go on. What it has found by then is acted upon; pools that it did not come to go
// first in the next.
const searching = time.Minute

// rest is how many times as long as a search has taken the next one waits, where nothing is found.
const rest = 10

// calm is a view on which everything was looked at and nothing found.
type calm struct {
	fingerprint uint64
	at          time.Time
	// until is when the next search may begin, whatever changes: searching is not all that this process has to do.
	until time.Time
}

// proposeMoves looks for nodes that are not worth their price. All commands of a search can be started beside one another; those of
// the next would count on the same room, so it waits until the last ones have been started or dropped.
func (l *Loop) proposeMoves(_ context.Context, r *round) error {
	if r.moved || slices.ContainsFunc(l.proposals, func(p proposal) bool { return p.cmd.Reason == karpv1.DisruptionUnderutilized }) {
		return nil
	}
	l.hasTurn(consolidation)
	totals, unknown := l.ledger.Update(r.View)
	for pool, n := range unknown {
		l.Metrics.CostErrors.WithLabelValues(pool).Add(float64(n))
	}
	room := r.rooms[karpv1.DisruptionUnderutilized]
	fingerprint := r.Fingerprint(room)
	if fingerprint == l.calm.fingerprint && r.Snapshot.Now.Sub(l.calm.at) < again || r.Snapshot.Now.Before(l.calm.until) {
		return nil
	}
	candidates := l.accepted(l.unspoilt(r.free(r.Candidates)))
	began := l.Now()
	settings := l.Consolidation
	settings.Over = func() bool { return l.Now().Sub(began) > searching }
	found := consolidate.Find(r.compiled(), r.Snapshot, candidates, room.Allowances(), consolidate.PoolTotals(r.Snapshot, r.Candidates, totals), settings)
	took := l.Now().Sub(began)
	l.measureMoves(&found, len(candidates), took)
	l.Consolidation.First = found.Unseen
	l.calm = calm{}
	if len(found.Commands) == 0 {
		l.calm.until = r.Snapshot.Now.Add(rest * took)
		if !found.OverBudget && !found.TimedOut {
			l.calm.fingerprint, l.calm.at = fingerprint, r.Snapshot.Now
		}
	}
	for i := range found.Commands {
		if cmd := &found.Commands[i]; room.Holds(cmd.Candidates) {
			l.tellMove(cmd)
			l.propose(r, cmd)
		}
	}
	for i := range found.Rejected {
		l.tellWeighed(&found.Rejected[i], "rejected")
	}
	for _, k := range found.Left {
		if k.Quiet {
			continue
		}
		l.onBoth(k.Candidate.Node, func(o event.Object) { l.Events.NormalEvery(unconsolidatableQuiet, o, "Unconsolidatable", "%s", k.Why) })
	}
	return nil
}

// spoil keeps a node that could not be closed out of searches for a while, so that commands can be started that it would be part of.
func (l *Loop) spoil(uid types.UID) {
	if l.spoilt == nil {
		l.spoilt = map[types.UID]time.Time{}
	}
	l.spoilt[uid] = l.Now().Add(again)
}

func (l *Loop) unspoilt(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	now := l.Now()
	maps.DeleteFunc(l.spoilt, func(_ types.UID, until time.Time) bool { return !now.Before(until) })
	return slices.DeleteFunc(candidates, func(c *disrupt.Candidate) bool { return !l.spoilt[c.Node.ClaimUID].IsZero() })
}

func (l *Loop) measureMoves(found *consolidate.Result, candidates int, took time.Duration) {
	l.Metrics.Evaluation.WithLabelValues("underutilized", consolidate.Multi).Observe(took.Seconds())
	ineligible := 0
	for _, k := range found.Left {
		if k.Candidate.Type == nil || k.Quiet {
			ineligible++
		}
	}
	l.Metrics.EligibleNodes.WithLabelValues("underutilized").Set(float64(candidates - ineligible))
	if found.TimedOut {
		l.Metrics.Timeouts.WithLabelValues(consolidate.Multi).Inc()
	}
}

// tellMove records a command that was found, and what the pools say that weigh it.
func (l *Loop) tellMove(cmd *disrupt.Command) {
	for _, line := range consolidate.Explain(cmd) {
		l.Log.Debug("found consolidation", "what", line)
	}
	for _, c := range cmd.Candidates {
		l.onBoth(c.Node, func(o event.Object) {
			l.Events.Normal(o, "ConsolidationCandidate", "Consolidation candidate: %s (savings: $%.2f)", part(cmd, c), cmd.Savings)
		})
	}
	l.tellWeighed(cmd, "approved")
	for _, v := range cmd.Verdicts {
		l.tellApproved(cmd, v)
	}
}

// tellWeighed counts a move for each pool that would lose nodes by it, and records how those of policy Balanced have weighed it.
// It is made only if all approve.
func (l *Loop) tellWeighed(cmd *disrupt.Command, outcome string) {
	for _, name := range pools(cmd) {
		at := slices.IndexFunc(cmd.Candidates, func(c *disrupt.Candidate) bool { return c.Node.Pool == name })
		l.Metrics.Moves.WithLabelValues(outcome, name, string(cmd.Candidates[at].Pool.Spec.Disruption.ConsolidationPolicy)).Inc()
	}
	for _, v := range cmd.Verdicts {
		l.Metrics.Score.WithLabelValues(outcome, v.Pool.Name, string(v.Pool.Spec.Disruption.ConsolidationPolicy)).Observe(v.Score)
		l.Log.Debug("consolidation score", "nodepool", v.Pool.Name, "score", v.Score, "savings_fraction", v.Savings, "disruption_fraction", v.Disruption,
			"savings", v.Saved, "disruption_cost", v.Disturbed, "nodepool_total_cost", v.PoolCost, "nodepool_total_disruption_cost", v.PoolDisruption,
			"threshold", consolidate.Threshold, "k", int(consolidate.Weight), "approved", v.Approved, "decision", decision(cmd), "candidates", len(cmd.Candidates))
	}
}

func (l *Loop) tellApproved(cmd *disrupt.Command, v disrupt.Verdict) {
	const message = "score %.2f >= threshold %.2f (k: %d, savings %.1f%%, disruption %.1f%%)"
	tell := func(o event.Object) {
		l.Events.Normal(o, "ConsolidationApproved", message, v.Score, consolidate.Threshold, int(consolidate.Weight), 100*v.Savings, 100*v.Disruption)
	}
	if len(cmd.Candidates) == 1 {
		l.onBoth(cmd.Candidates[0].Node, tell)
		return
	}
	tell(v.Pool)
}
