package disruption

import (
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
)

// durations is how long each kind of work of a pass took.
type durations map[pass.Work]time.Duration

// measured has the pass measure its work.
func (l *Loop) measured(in *pass.Input) durations {
	out := durations{}
	var current pass.Work
	var began time.Time
	in.Step = func(w pass.Work) {
		now := l.Now()
		if current != 0 {
			out[current] += now.Sub(began)
		}
		current, began = w, now
	}
	return out
}

// report publishes what a pass has decided, and measures it.
func (l *Loop) report(decided *pass.Decisions, took durations) {
	for _, reason := range l.reasons() {
		l.recordBudgets(reason, decided.Budgets[reason])
	}
	l.deletePoolGauges(decided.Budgets[karpv1.DisruptionEmpty])
	l.reportCosts(decided)
	l.recordBlockedNodes(decided.View)
	l.recordPodEvents(decided.View)
	l.reportWork(decided, took)
	if decided.Stats.Ran&pass.Repair != 0 {
		l.reportRepair(decided)
	}
	for i := range decided.Dropped {
		l.reject(&decided.Dropped[i])
	}
	l.Metrics.EligibleNodes.WithLabelValues("empty").Set(float64(decided.Stats.Empty))
	l.Metrics.EligibleNodes.WithLabelValues("drifted").Set(float64(decided.Stats.Drifted))
	if decided.Stats.Ran&pass.Expire != 0 {
		l.Metrics.EligibleNodes.WithLabelValues("expired").Set(float64(decided.Stats.Expiring))
	}
	l.reportLimits(decided)
	for i := range decided.Stay {
		if k := &decided.Stay[i]; k.By&(pass.Replicas|pass.Drift|pass.Expire) != 0 {
			l.recordBlocked(k.Node, k.Message)
		}
	}
	l.reportSearch(decided, took[pass.Savings])
}

// reportWork notes when each method ran, and how long it took.
func (l *Loop) reportWork(decided *pass.Decisions, took durations) {
	for _, m := range []struct {
		work         pass.Work
		method       string
		reason, kind string // labels of Karpenter's metric; without a reason there is none
	}{
		{pass.Repair, methodRepair, "unhealthy", ""},
		{pass.Empty, methodEmptiness, "empty", disrupt.TypeEmpty},
		{pass.Replicas, methodStaticDrift, "", ""},
		{pass.Drift, methodDrift, "drifted", ""},
		{pass.Expire, methodExpiration, "expired", ""},
		{pass.Savings, methodConsolidation, "underutilized", consolidate.Multi},
	} {
		if decided.Stats.Ran&m.work != 0 {
			l.noteMethodRun(m.method)
		}
		if t, measured := took[m.work]; measured && m.reason != "" {
			l.Metrics.Evaluation.WithLabelValues(m.reason, m.kind).Observe(t.Seconds())
		}
	}
}

// reportCosts measures what the pools cost, in $/h.
func (l *Loop) reportCosts(decided *pass.Decisions) {
	for pool, n := range decided.Unpriced {
		l.Metrics.CostErrors.WithLabelValues(pool).Add(float64(n))
	}
	planned := decided.PlannedCosts()
	for pool := range l.gaugedPools {
		l.Metrics.Cost.WithLabelValues(pool).Set(decided.Costs[pool])
		l.Metrics.PlannedCost.WithLabelValues(pool).Set(planned[pool])
	}
}

// reject publishes that a proposal became invalid before it started.
func (l *Loop) reject(d *pass.Dropped) {
	p := &d.Proposal
	l.Metrics.FailedValidations.WithLabelValues(p.Kind).Add(float64(d.Nodes))
	if d.Part || p.Reason == karpv1.DisruptionEmpty {
		return
	}
	shape := proposedShape(p)
	l.Log.Debug("consolidation rejected", "command", shape.String(), "kind", d.Why.Kind, "why", d.Why.Message)
	for _, n := range p.Nodes {
		l.onNodeAndClaim(nodeAndClaim{n.Name, n.Claim, n.UID}, func(o event.Object) {
			l.Events.Normal(
				o,
				"ConsolidationRejected",
				"Consolidation rejected: %s, reason: %s (savings: $%.2f)",
				shape.part(n.Name),
				d.Why.Kind,
				float64(p.Savings),
			)
		})
	}
}
