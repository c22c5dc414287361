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
	// repeatSearchAfter is after how long a search is repeated although the fingerprint of the view is the same. It is
	// the time after which Karpenter considers its cluster state changed.
	repeatSearchAfter = 5 * time.Minute
	// unconsolidatableDedupe is the window in which the same reason is not published again on a node.
	unconsolidatableDedupe = 15 * time.Minute
	// searchRestFactor is how many times the duration of a search that found nothing the loop rests before the next:
	// with 10, searching takes at most about a tenth of one core.
	searchRestFactor = 10
)

// fruitlessSearch is a view in which a complete search found nothing.
type fruitlessSearch struct {
	fingerprint uint64
	at          time.Time
	// due is when time alone makes a move right that the search rejected; zero if there is none.
	due time.Time
	// until is the earliest start of the next search, whatever changes: other work of the process needs CPU time, too.
	until time.Time
}

// repeatAt is when the search is repeated although the fingerprint is the same.
func (f *fruitlessSearch) repeatAt() time.Time {
	if at := f.at.Add(repeatSearchAfter); f.due.IsZero() || at.Before(f.due) {
		return at
	}
	return f.due
}

// recordCosts measures what the pools cost, in $/h.
func (l *Loop) recordCosts(r *passState) {
	totals, unknown := l.ledger.Update(r.View)
	for pool, n := range unknown {
		l.Metrics.CostErrors.WithLabelValues(pool).Add(float64(n))
	}
	for pool := range l.gaugedPools {
		l.Metrics.Cost.WithLabelValues(pool).Set(totals[pool])
	}
	r.costs = totals
}

// proposeConsolidations searches for nodes that cost more than they are worth. The commands of one search do not
// conflict. Those of the next search could use the same free capacity, so it waits until the last ones have started or
// been dropped.
func (l *Loop) proposeConsolidations(_ context.Context, r *passState) error {
	if r.moved || slices.ContainsFunc(l.proposals, func(p proposal) bool { return p.cmd.Reason == karpv1.DisruptionUnderutilized }) {
		return nil
	}
	l.noteMethodRun(methodConsolidation)
	room := r.budgets[karpv1.DisruptionUnderutilized]
	fingerprint := r.Fingerprint(room)
	defer func() { r.searched = fingerprint == l.lastSearch.fingerprint }()
	if fingerprint == l.lastSearch.fingerprint && r.Snapshot.Now.Before(l.lastSearch.repeatAt()) ||
		r.Snapshot.Now.Before(l.lastSearch.until) {
		return nil
	}
	if l.manyPending(r) {
		l.Log.Debug("search for consolidations waits, since many pods need nodes", "pods", len(r.Snapshot.Pods))
		return nil
	}
	candidates := l.withoutBackedOff(l.withoutExcluded(r.free(r.Candidates)))
	began := l.Now()
	found := consolidate.Find(
		consolidate.Input{
			Problem:    r.compiled(),
			Snapshot:   r.Snapshot,
			Candidates: candidates,
			Budgets:    room.Allowances(),
			Totals:     consolidate.PoolTotals(r.Snapshot, r.Candidates, r.costs),
			Interrupt:  l.searchInterrupt(),
		},
		l.Consolidation,
	)
	took := l.Now().Sub(began)
	if l.interrupted = found.Interrupted; l.interrupted {
		l.Log.Debug("search for consolidations ended, since many pods need nodes", "duration", took)
		return nil
	}
	l.recordFind(r, candidates, &found)
	l.recordSearchMetrics(&found, len(candidates), took)
	l.Consolidation.PoolsFirst = found.Unexamined
	l.lastSearch = fruitlessSearch{}
	if len(found.Commands) == 0 {
		l.lastSearch.until = r.Snapshot.Now.Add(searchRestFactor * took)
		if !found.OverBudget && found.TimedOut == "" {
			l.lastSearch.fingerprint, l.lastSearch.at, l.lastSearch.due = fingerprint, r.Snapshot.Now, found.NextChange
		}
	}
	for i := range found.Commands {
		if cmd := &found.Commands[i]; room.Allow(cmd.Candidates) {
			l.recordConsolidationFound(cmd)
			l.recordDecision(r, cmd, &found)
			l.propose(r, cmd)
		}
	}
	for i := range found.Rejected {
		l.recordScores(&found.Rejected[i], "rejected")
	}
	for _, k := range found.Unconsolidatable {
		if k.Reason.Quiet() {
			continue
		}
		l.onNodeAndClaim(k.Candidate.Node, func(o event.Object) {
			l.Events.NormalEvery(unconsolidatableDedupe, o, "Unconsolidatable", "%s", k.Message)
		})
	}
	return nil
}

// manyPending reports whether many pods wait for nodes, and have not for long.
func (l *Loop) manyPending(r *passState) bool {
	switch {
	case len(r.Snapshot.Pods) < disrupt.ManyPending:
		l.manyPendingSince = time.Time{}
		return false
	case l.manyPendingSince.IsZero():
		l.manyPendingSince = r.Snapshot.Now
	}
	return r.Snapshot.Now.Sub(l.manyPendingSince) < disrupt.LongestPostponement
}

// searchInterrupt reports whether a search that begins now is to end early: the pods of a burst come first, and the search is of a cluster
// that changes. It is nil if the search must not be interrupted.
func (l *Loop) searchInterrupt() func() bool {
	if l.Provisioning == nil || l.interrupted || l.Provisioning.InBurst() {
		return nil
	}
	return l.Provisioning.InBurst
}

// exclude removes a node that could not be tainted from searches for a while: it would block each command that includes
// it.
func (l *Loop) exclude(uid types.UID) {
	if l.excluded == nil {
		l.excluded = map[types.UID]time.Time{}
	}
	l.excluded[uid] = l.Now().Add(repeatSearchAfter)
}

func (l *Loop) withoutExcluded(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	now := l.Now()
	maps.DeleteFunc(l.excluded, func(_ types.UID, until time.Time) bool { return !now.Before(until) })
	return slices.DeleteFunc(candidates, func(c *disrupt.Candidate) bool { return !l.excluded[c.Node.ClaimUID].IsZero() })
}

func (l *Loop) recordSearchMetrics(found *consolidate.Result, candidates int, took time.Duration) {
	l.Metrics.Evaluation.WithLabelValues("underutilized", consolidate.Multi).Observe(took.Seconds())
	ineligible := 0
	for _, k := range found.Unconsolidatable {
		if k.Candidate.Type == nil || k.Reason.Quiet() {
			ineligible++
		}
	}
	l.Metrics.EligibleNodes.WithLabelValues("underutilized").Set(float64(candidates - ineligible))
	if found.TimedOut != "" {
		l.Metrics.Timeouts.WithLabelValues(found.TimedOut).Inc()
	}
}

// recordConsolidationFound records a command that was found, and how the pools with policy Balanced score it.
func (l *Loop) recordConsolidationFound(cmd *disrupt.Command) {
	for _, line := range consolidate.Explain(cmd) {
		l.Log.Debug("found consolidation", "what", line)
	}
	for _, c := range cmd.Candidates {
		l.onNodeAndClaim(c.Node, func(o event.Object) {
			l.Events.Normal(o, "ConsolidationCandidate", "Consolidation candidate: %s (savings: $%.2f)", describePart(cmd, c), cmd.Savings)
		})
	}
	l.recordScores(cmd, "approved")
	for _, v := range cmd.Verdicts {
		l.recordApproval(cmd, v)
	}
}

// recordScores counts a command for each pool that would lose nodes, and records the scores of pools with policy
// Balanced. The command starts only if all of them approve.
func (l *Loop) recordScores(cmd *disrupt.Command, outcome string) {
	for _, name := range affectedPools(cmd) {
		at := slices.IndexFunc(cmd.Candidates, func(c *disrupt.Candidate) bool { return c.Node.Pool == name })
		l.Metrics.Moves.WithLabelValues(outcome, name, string(cmd.Candidates[at].Pool.Spec.Disruption.ConsolidationPolicy)).Inc()
	}
	for _, v := range cmd.Verdicts {
		l.Metrics.Score.WithLabelValues(outcome, v.Pool.Name, string(v.Pool.Spec.Disruption.ConsolidationPolicy)).Observe(v.Score)
		l.Log.Debug(
			"consolidation score",
			"nodepool",
			v.Pool.Name,
			"score",
			v.Score,
			"savings_fraction",
			v.Savings,
			"disruption_fraction",
			v.Disruption,
			"savings",
			v.Saved,
			"disruption_cost",
			v.Disturbed,
			"nodepool_total_cost",
			v.PoolCost,
			"nodepool_total_disruption_cost",
			v.PoolDisruption,
			"threshold",
			consolidate.Threshold,
			"k",
			int(consolidate.Weight),
			"approved",
			v.Approved,
			"decision",
			decision(cmd),
			"candidates",
			len(cmd.Candidates),
		)
	}
}

func (l *Loop) recordApproval(cmd *disrupt.Command, v disrupt.Verdict) {
	const message = "score %.2f >= threshold %.2f (k: %d, savings %.1f%%, disruption %.1f%%)"
	publish := func(o event.Object) {
		l.Events.Normal(
			o,
			"ConsolidationApproved",
			message,
			v.Score,
			consolidate.Threshold,
			int(consolidate.Weight),
			100*v.Savings,
			100*v.Disruption,
		)
	}
	if len(cmd.Candidates) == 1 {
		l.onNodeAndClaim(cmd.Candidates[0].Node, publish)
		return
	}
	publish(v.Pool)
}
