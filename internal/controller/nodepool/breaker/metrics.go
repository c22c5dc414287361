package breaker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
)

// Metrics count replacements and report paused reasons.
type Metrics struct {
	// Paused by nodepool, reason is 1 while the reason is paused.
	Paused *prometheus.GaugeVec
	// Replacements by nodepool, reason, outcome (came_up, failed).
	Replacements *prometheus.CounterVec
}

// NewMetrics declares the metrics in reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		Paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dovetail_disruption_paused",
			Help: "1 while nodes of the pool are not replaced for the reason, because too many replacements did not become ready; " +
				"reason NewNodesFail stands for all: new nodes became ready and failed soon after.",
		}, []string{"nodepool", "reason"}),
		Replacements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dovetail_replacements_total",
			Help: "NodeClaims that were launched to replace others, by outcome: came_up (and stayed ready for 3 minutes) or failed.",
		}, []string{"nodepool", "reason", "outcome"}),
	}
	return m, errors.Join(reg.Register(m.Paused), reg.Register(m.Replacements))
}

func (m *Metrics) count(pool string, reason karpv1.DisruptionReason, o breaker.Outcome) {
	outcome := "came_up"
	if o.Failed() {
		outcome = "failed"
	}
	m.Replacements.WithLabelValues(pool, string(reason), outcome).Inc()
}

func (m *Metrics) pause(pool string, reasons []string) {
	m.forget(pool)
	for _, reason := range reasons {
		m.Paused.WithLabelValues(pool, reason).Set(1)
	}
}

func (m *Metrics) forget(pool string) {
	m.Paused.DeletePartialMatch(prometheus.Labels{"nodepool": pool})
}
