package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Disruption are the metrics of voluntary disruption.
type Disruption struct {
	// AllowedDisruptions and ConsumingBudgets by nodepool, reason.
	AllowedDisruptions, ConsumingBudgets *prometheus.GaugeVec
	// EligibleNodes by reason.
	EligibleNodes *prometheus.GaugeVec
	// Evaluation in seconds, by reason, consolidation_type.
	Evaluation *prometheus.HistogramVec
	// Decisions by decision, reason, consolidation_type; DecisionsByPool by nodepool before these.
	Decisions, DecisionsByPool *prometheus.CounterVec
	// TerminateFirst by nodepool, reason, terminate_first_reason.
	TerminateFirst *prometheus.CounterVec
	// Timeouts and FailedValidations by consolidation_type.
	Timeouts, FailedValidations *prometheus.CounterVec
	// QueueFailures by decision, reason, consolidation_type: replacements that did not become ready.
	QueueFailures *prometheus.CounterVec
	// Score and Moves by decision, nodepool, policy.
	Score *prometheus.HistogramVec
	Moves *prometheus.CounterVec
	// Cost by nodepool: what its nodes cost, in $/h.
	Cost *prometheus.GaugeVec
	// PlannedCost by nodepool: what they cost once all commands have finished that have begun or are decided, in $/h.
	PlannedCost *prometheus.GaugeVec
	// CostErrors by nodepool: nodes without a known price.
	CostErrors *prometheus.CounterVec
}

func newDisruption(d *registrar) Disruption {
	const voluntary = "voluntary_disruption"
	out := Disruption{
		AllowedDisruptions: d.gauge(
			"nodepools",
			"allowed_disruptions",
			"Nodes that the budgets of the NodePool allow to be disrupted now, by reason.",
			"nodepool",
			"reason",
		),
		ConsumingBudgets: d.gauge(
			"nodepools",
			"nodes_consuming_budgets",
			"Nodes that use up a budget: they are being disrupted, or are not Ready.",
			"nodepool",
			"reason",
		),
		EligibleNodes: d.gauge(voluntary, "eligible_nodes", "Nodes that a disruption method could act on.", "reason"),
		Evaluation: d.histogram(prometheus.HistogramOpts{
			Subsystem: voluntary, Name: "decision_evaluation_duration_seconds",
			Help: "Time to search for commands.", Buckets: durationBuckets,
		}, "reason", "consolidation_type"),
		Decisions: d.counter(
			voluntary,
			"decisions_total",
			"Disruption commands that were started.",
			"decision",
			"reason",
			"consolidation_type",
		),
		DecisionsByPool: d.counter(
			voluntary,
			"decisions_by_nodepool_total",
			"Disruption commands that were started, once for each NodePool that loses nodes.",
			"nodepool",
			"decision",
			"reason",
			"consolidation_type",
		),
		TerminateFirst: d.counter(
			voluntary,
			"terminate_first_decisions_total",
			"Nodes terminated before their replacement was launched, since that could not come first.",
			"nodepool",
			"reason",
			"terminate_first_reason",
		),
		Timeouts: d.counter(
			voluntary,
			"consolidation_timeouts_total",
			"Searches that timed out before they were complete.",
			"consolidation_type",
		),
		FailedValidations: d.counter(
			voluntary,
			"failed_validations_total",
			"Nodes in commands that became invalid before they started.",
			"consolidation_type",
		),
		QueueFailures: d.counter(
			voluntary,
			"queue_failures_total",
			"Replacements that were not initialized, so their disruption command was rolled back.",
			"decision",
			"reason",
			"consolidation_type",
		),
	}
	out.declareCosts(d)
	out.begin()
	return out
}

// begin makes the series with labels of closed sets, so that the first event is an increase.
func (m *Disruption) begin() {
	for _, consolidationType := range []string{"multi", "single"} {
		m.Timeouts.WithLabelValues(consolidationType)
	}
	for _, consolidationType := range []string{"", "empty", "multi", "single"} {
		m.FailedValidations.WithLabelValues(consolidationType)
	}
	for _, command := range []struct{ reason, consolidationType string }{
		{"drifted", ""}, {"unhealthy", ""}, {"underutilized", "multi"}, {"underutilized", "single"},
	} {
		m.Decisions.WithLabelValues("delete", command.reason, command.consolidationType)
		m.Decisions.WithLabelValues("replace", command.reason, command.consolidationType)
		m.QueueFailures.WithLabelValues("replace", command.reason, command.consolidationType)
	}
	m.Decisions.WithLabelValues("delete", "empty", "empty")
}

// declareCosts declares the metrics of prices and savings.
func (m *Disruption) declareCosts(d *registrar) {
	m.Score = d.histogram(prometheus.HistogramOpts{
		Subsystem: "consolidation", Name: "score",
		Help: "Score of a consolidation command: its savings divided by its disruption, both as shares of the NodePool.", Buckets: []float64{
			.1, .25, .33, .5, 1, 2, 5,
			10,
		},
	}, "decision", "nodepool", "policy")
	m.Moves = d.counter(
		"consolidation", "moves_total", "Consolidation commands that were scored, by verdict.", "decision", "nodepool", "policy",
	)
	m.Cost = d.gauge("nodepools", "cost_total", "What the nodes of a NodePool cost now, in $/h.", "nodepool")
	m.PlannedCost = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dovetail_nodepools_planned_cost",
		Help: "What the nodes of a NodePool cost once all disruption commands have finished that have begun or are decided, in $/h.",
	}, []string{"nodepool"})
	d.register(m.PlannedCost)
	m.CostErrors = d.counter("nodepools", "cost_tracker_errors_total", "Nodes of a NodePool without a known price.", "nodepool")
}

// ClaimDisruptedByCommand counts the deletion of a claim by a command, with its pods. policy is the consolidation policy of its pool for
// consolidation, empty otherwise.
func (m *Metrics) ClaimDisruptedByCommand(
	claim *karpv1.NodeClaim,
	reason karpv1.DisruptionReason,
	policy karpv1.ConsolidationPolicy,
	pods int,
) {
	labels := disruption(claim, strings.ToLower(string(reason)), Snake(string(policy)))
	m.ClaimsDisrupted.WithLabelValues(labels...).Inc()
	m.PodsDisruption.WithLabelValues(labels...).Add(float64(pods))
}

// Snake spells WhenEmpty as when_empty.
func Snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
