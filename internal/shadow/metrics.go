package shadow

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the numbers of the report. All of them are 0, or missing, unless the controller runs in shadow mode.
type Metrics struct {
	launches, removed, evictions, perHour *prometheus.GaugeVec
	refused                               *prometheus.CounterVec
}

// The values of the label by.
const byShadow, byActing = "shadow", "acting"

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "dovetail", Subsystem: "shadow", Name: name, Help: help}, []string{"by"})
	}
	m := &Metrics{
		launches: gauge("launched_nodes",
			"In shadow mode, nodes launched since it began: by Dovetail, had it acted (shadow), and by the acting controller (acting)."),
		removed: gauge("removed_nodes",
			"In shadow mode, nodes removed since it began: by Dovetail, had it acted (shadow), and by the acting controller (acting)."),
		evictions: gauge("evicted_pods", "In shadow mode, pods on the removed nodes that had to move."),
		perHour:   gauge("fleet_cost", "In shadow mode, what the nodes of NodePools cost now, in dollars per hour."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "dovetail", Subsystem: "shadow", Name: "refused_writes_total",
			Help: "Writes that shadow mode refused, by target: kubernetes or aws. Any is a bug in Dovetail.",
		}, []string{"target"}),
	}
	for _, c := range []prometheus.Collector{m.launches, m.removed, m.evictions, m.perHour, m.refused} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// CountRefused counts a write that was refused.
func (m *Metrics) CountRefused(target string) { m.refused.WithLabelValues(target).Inc() }

func (m *Metrics) set(r Report) {
	for by, t := range map[string]Totals{byShadow: r.Shadow, byActing: r.Acting} {
		m.launches.WithLabelValues(by).Set(float64(t.Launches))
		m.removed.WithLabelValues(by).Set(float64(t.Removed))
		m.evictions.WithLabelValues(by).Set(float64(t.Evictions))
		m.perHour.WithLabelValues(by).Set(t.HourlyCost)
	}
}
