package interruption

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Metrics count messages and unhealthy instances.
type Metrics struct {
	// Received by message_type, the kind of interruption; Deleted messages.
	Received *prometheus.CounterVec
	Deleted  prometheus.Counter
	// Latency is the time from an event until its message has been handled, in seconds.
	Latency prometheus.Histogram
	// Unhealthy by category: instances of this cluster that became unhealthy.
	Unhealthy *prometheus.CounterVec
	// Available is 1 while the queue can be read, 0 while it cannot. Without a queue there is no value.
	Available *prometheus.GaugeVec
}

// kindsOfMessages are those that a message of the queue can have, kindsOfImpairments those that the status of an instance can have.
var (
	kindsOfMessages = []cloudprovider.InterruptionKind{
		cloudprovider.SpotInterrupted, cloudprovider.RebalanceRecommended, cloudprovider.InstanceStopped, cloudprovider.InstanceTerminated,
		cloudprovider.ReservationInterrupted, cloudprovider.ScheduledChange, cloudprovider.NoInterruption,
	}
	kindsOfImpairments = []cloudprovider.InterruptionKind{
		cloudprovider.InstanceStatusFailed, cloudprovider.SystemStatusFailed, cloudprovider.EventScheduled,
	}
)

// NewMetrics declares the metrics in reg.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	const namespace, subsystem = "karpenter", "interruption"
	m := &Metrics{
		Received: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "received_messages_total", Help: "Messages received from the interruption queue.",
		}, []string{"message_type"}),
		Deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "deleted_messages_total", Help: "Messages deleted from the interruption queue.",
		}),
		Latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "message_queue_duration_seconds",
			Help: "Time from an event until its message has been handled.",
			Buckets: []float64{
				.005, .01, .025, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .6, .7, .8, .9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5, 5,
				6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150, 300, 450, 600,
			},
		}),
		Unhealthy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "instance_status_unhealthy_total",
			Help: "Instances found unhealthy by their status checks, counted once until they recover.",
		}, []string{"category"}),
		Available: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "dovetail_interruption_queue_available", Help: "1 while the interruption queue can be read, 0 while it cannot.",
		}, []string{"queue"}),
	}
	for _, kind := range kindsOfMessages { // an alert on the increase misses a counter that begins with 1
		m.Received.WithLabelValues(string(kind))
	}
	for _, kind := range kindsOfImpairments {
		m.Unhealthy.WithLabelValues(category(kind))
	}
	return m, errors.Join(
		reg.Register(m.Received),
		reg.Register(m.Deleted),
		reg.Register(m.Latency),
		reg.Register(m.Unhealthy),
		reg.Register(m.Available),
	)
}
