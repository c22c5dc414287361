package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Cloud are the metrics of the cloud provider.
type Cloud struct {
	launchFailures, terminationFailures *prometheus.CounterVec
	batchTime, batchSize                *prometheus.HistogramVec
	userData                            *prometheus.GaugeVec
}

var _ cloudprovider.Meter = (*Cloud)(nil)

// batchSizeBuckets are the buckets of the number of requests in one call.
var batchSizeBuckets = []float64{1, 2, 4, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000}

// NewCloud declares the metrics in reg.
func NewCloud(reg prometheus.Registerer) (*Cloud, error) {
	d := registrar{reg: reg}
	c := &Cloud{
		launchFailures: d.counter(
			"cloudprovider",
			"instance_launch_failures_total",
			"Offerings that could not be launched.",
			"zone",
			"zone_id",
			"capacity_type",
			"reason",
		),
		terminationFailures: d.counter(
			"cloudprovider",
			"instance_termination_failures_total",
			"Calls to terminate an instance that failed.",
			"zone",
			"zone_id",
		),
		batchTime: d.histogram(prometheus.HistogramOpts{
			Subsystem: "cloudprovider", Name: "batcher_batch_time_seconds",
			Help: "How long requests were collected for one call.", Buckets: durationBuckets,
		}, "batcher"),
		batchSize: d.histogram(prometheus.HistogramOpts{
			Subsystem: "cloudprovider", Name: "batcher_batch_size", Help: "Requests in one call.",
			Buckets: batchSizeBuckets,
		}, "batcher"),
		userData: d.gauge("ec2nodeclasses", "userdata_bytes", "Size of the instances' user data; EC2 accepts 16384.", "nodeclass"),
	}
	return c, d.err
}

// LaunchFailed implements cloud.Meter.
func (c *Cloud) LaunchFailed(zone, zoneID, capacityType, reason string) {
	c.launchFailures.WithLabelValues(zone, zoneID, capacityType, reason).Inc()
}

// TerminationFailed implements cloud.Meter.
func (c *Cloud) TerminationFailed(zone, zoneID string) {
	c.terminationFailures.WithLabelValues(zone, zoneID).Inc()
}

// Batched implements cloud.Meter.
func (c *Cloud) Batched(batcher string, size int, gathered time.Duration) {
	c.batchTime.WithLabelValues(batcher).Observe(gathered.Seconds())
	c.batchSize.WithLabelValues(batcher).Observe(float64(size))
}

// UserData implements cloud.Meter.
func (c *Cloud) UserData(nodeClass string, bytes int) {
	if bytes < 0 {
		c.userData.DeleteLabelValues(nodeClass)
		return
	}
	c.userData.WithLabelValues(nodeClass).Set(float64(bytes))
}
