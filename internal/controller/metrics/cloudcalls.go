package metrics

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// provider is the cloud, as a label.
const provider = "aws"

// CloudCalls measures what controllers require of the cloud provider.
type CloudCalls struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
}

// NewCloudCalls declares the metrics in reg.
func NewCloudCalls(reg prometheus.Registerer) (*CloudCalls, error) {
	d := registrar{reg: reg}
	c := &CloudCalls{
		duration: d.histogram(prometheus.HistogramOpts{
			Subsystem: "cloudprovider", Name: "duration_seconds", Buckets: prometheus.DefBuckets,
			Help: "How long calls of the cloud provider take, by the controller that makes them.",
		}, "controller", "method", "provider"),
		errors: d.counter("cloudprovider", "errors_total", "Calls of the cloud provider that failed. "+
			"nodepool is empty where it is not known.", "controller", "method", "provider", "error", "nodepool"),
	}
	return c, d.err
}

// CloudCall is a call in progress.
type CloudCall struct {
	calls              *CloudCalls
	controller, method string
	began              time.Time
}

// Begin notes the begin of a call of a controller.
func (c *CloudCalls) Begin(controller, method string) CloudCall {
	return CloudCall{c, controller, method, time.Now()}
}

// End measures the call, with the pool that it was for if that is known.
func (c CloudCall) End(pool string, err error) {
	c.calls.duration.WithLabelValues(c.controller, c.method, provider).Observe(time.Since(c.began).Seconds())
	if err != nil {
		c.calls.errors.WithLabelValues(c.controller, c.method, provider, errorLabel(err), pool).Inc()
	}
}

// errorLabel is Karpenter's name for an error.
func errorLabel(err error) string {
	var capacity *cloudprovider.InsufficientCapacityError
	var notReady *cloudprovider.NodeClassNotReadyError
	switch {
	case errors.Is(err, cloudprovider.ErrNotFound):
		return "NodeClaimNotFoundError"
	case errors.As(err, &capacity):
		return "InsufficientCapacityError"
	case errors.As(err, &notReady):
		return "NodeClassNotReadyError"
	}
	return "unknown"
}
