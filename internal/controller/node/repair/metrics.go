package repair

import "github.com/prometheus/client_golang/prometheus"

// Metrics count repairs.
type Metrics struct {
	// Unhealthy counts the claims deleted for their node's health, by condition, nodepool, capacity_type, image_id,
	// termination_mode.
	Unhealthy *prometheus.CounterVec
}

// NewMetrics declares the metrics in reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{Unhealthy: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "karpenter", Subsystem: "nodeclaims", Name: "unhealthy_disrupted_total",
		Help: "NodeClaims that node repair deleted or rebooted, by the condition of the node.",
	}, []string{"condition", "nodepool", "capacity_type", "image_id", "termination_mode"})}
	return m, reg.Register(m.Unhealthy)
}
