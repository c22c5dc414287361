package deletioncost

import "github.com/prometheus/client_golang/prometheus"

// The results of writes in metrics. Pods that have the right value are never written.
const (
	resultUpdated   = "updated"
	resultUnchanged = "skipped_unchanged"
	resultNotFound  = "skipped_notfound"
	resultConflict  = "skipped_conflict"
	resultError     = "error"
)

// Metrics count writes of deletion costs.
type Metrics struct {
	Writes  *prometheus.CounterVec
	Pending *prometheus.GaugeVec
}

// NewMetrics declares the metrics in reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		Writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "pod_deletion_cost", Name: "pod_annotation_writes_total",
			Help: "Writes of deletion costs of pods, by result.",
		}, []string{"result"}),
		Pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "karpenter", Subsystem: "pod_deletion_cost", Name: "nodes_with_pending_annotation_writes",
			Help: "Nodes with pods that still need a deletion cost.",
		}, []string{"nodepool"}),
	}
	for _, result := range []string{resultUpdated, resultUnchanged, resultNotFound, resultConflict, resultError} {
		m.Writes.WithLabelValues(result)
	}
	if err := reg.Register(m.Writes); err != nil {
		return nil, err
	}
	return m, reg.Register(m.Pending)
}
