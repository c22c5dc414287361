package reboot

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count reboots.
type Metrics struct {
	// Reboots by result: succeeded, provider_error, recovery_timeout, invalid_request.
	Reboots *prometheus.CounterVec
	// Duration in seconds from the decision to the end, by result; Recovery from the call to EC2 to Ready.
	Duration *prometheus.HistogramVec
	Recovery prometheus.Histogram
}

// NewMetrics declares the metrics in reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	buckets := prometheus.ExponentialBuckets(10, 2, 8)
	m := &Metrics{
		Reboots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "karpenter", Subsystem: "nodes", Name: "reboots_total", Help: "Reboots of nodes that are over, by result.",
		}, []string{"result"}),
		Duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "nodes", Name: "reboot_duration_seconds",
			Help: "Time from the decision to reboot a node until the reboot is over.", Buckets: buckets,
		}, []string{"result"}),
		Recovery: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "karpenter", Subsystem: "nodes", Name: "reboot_recovery_duration_seconds",
			Help: "Time from the reboot of an instance until its node is Ready.", Buckets: buckets,
		}),
	}
	for _, result := range []string{resultSucceeded, resultProviderError, resultTimeout, resultInvalidRequest} {
		m.Reboots.WithLabelValues(result) // an alert on the increase misses a counter that begins with 1
	}
	for _, c := range []prometheus.Collector{m.Reboots, m.Duration, m.Recovery} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// ended records the end of an attempt.
func (m *Metrics) ended(a *attempt, result string, now time.Time) {
	m.Reboots.WithLabelValues(result).Inc()
	if !a.requested.IsZero() {
		m.Duration.WithLabelValues(result).Observe(now.Sub(a.requested).Seconds())
	}
	if by := a.record.RecoverBy; by != nil && result == resultSucceeded {
		m.Recovery.Observe(now.Sub(by.Add(-recoveryLimit(a.claim))).Seconds())
	}
}
