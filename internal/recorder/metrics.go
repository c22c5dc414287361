package recorder

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of recording.
type Metrics struct {
	passes, decisions, bytes prometheus.Counter
	dropped                  *prometheus.CounterVec
}

// NewMetrics declares the metrics in reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "dovetail_recorder_" + name, Help: help})
	}
	m := &Metrics{
		passes:    counter("passes_total", "Parts of passes in the recording."),
		decisions: counter("decisions_total", "Decisions in the recording."),
		bytes:     counter("written_bytes_total", "Bytes written to the recording."),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dovetail_recorder_dropped_total",
			Help: "Passes and steps that are not in the recording, by the reason: queue, file, size or defect.",
		}, []string{"what", "reason"}),
	}
	for _, what := range []string{"pass", "step", "deletion"} {
		for _, reason := range []string{"queue", "file", "size", "defect"} {
			m.dropped.WithLabelValues(what, reason)
		}
	}
	for _, c := range []prometheus.Collector{m.passes, m.decisions, m.bytes, m.dropped} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) drop(what, reason string) {
	if m != nil {
		m.dropped.WithLabelValues(what, reason).Inc()
	}
}

func (m *Metrics) countPass() {
	if m != nil {
		m.passes.Inc()
	}
}

func (m *Metrics) countDecisions(n int) {
	if m != nil {
		m.decisions.Add(float64(n))
	}
}

func (m *Metrics) wrote(n int64) {
	if m != nil {
		m.bytes.Add(float64(n))
	}
}
