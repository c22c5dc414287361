package disruption

import (
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

const (
	// unconsolidatableDedupe is the window in which the same reason is not published again on a node.
	unconsolidatableDedupe = 15 * time.Minute
	// searchRestFactor is how many times the duration of a search that found nothing the loop rests before the next:
	// with 10, searching takes at most about a tenth of one core.
	searchRestFactor = 10
)

// reportSearch publishes what a search for savings has found, and lets the loop rest after one that found nothing. took is how long it
// took.
func (l *Loop) reportSearch(decided *pass.Decisions, took time.Duration) {
	switch {
	case decided.Stats.Postponed:
		l.Log.Debug("search for consolidations waits, since many pods need nodes", "pods", len(decided.View.Snapshot.Pods))
	case decided.Stats.InterruptedAt > 0:
		l.Log.Debug("search for consolidations ended, since many pods need nodes", "duration", took)
	}
	found := decided.Found
	if found == nil {
		return
	}
	l.recordSearchMetrics(found, decided.Stats.Searched, took)
	if len(found.Commands) == 0 {
		l.restsUntil = decided.View.Snapshot.Now.Add(searchRestFactor * took)
	}
	for i := range decided.Propose {
		if cmd := &decided.Propose[i].Command; cmd.Reason == karpv1.DisruptionUnderutilized {
			l.recordConsolidationFound(cmd)
		}
	}
	for i := range found.Rejected {
		l.recordScores(&found.Rejected[i], "rejected")
	}
	for i := range decided.Stay {
		k := &decided.Stay[i]
		if k.By != pass.Savings || k.Reason.Quiet() {
			continue
		}
		l.onNodeAndClaim(refOf(k.Node), func(o event.Object) {
			l.Events.NormalEvery(unconsolidatableDedupe, o, "Unconsolidatable", "%s", k.Message)
		})
	}
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
		l.onNodeAndClaim(refOf(c.Node), func(o event.Object) {
			l.Events.Normal(o, "ConsolidationCandidate", "Consolidation candidate: %s (savings: $%.2f)", shapeOf(cmd).part(c.Node.Name), cmd.Savings)
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
		l.onNodeAndClaim(refOf(cmd.Candidates[0].Node), publish)
		return
	}
	publish(v.Pool)
}
