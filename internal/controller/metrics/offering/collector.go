package offering

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// Collector serves the last measurements as a whole: removed types disappear, and no scrape sees a mixture.
type Collector struct {
	cpus, memory, available, price *prometheus.Desc
	builtIn, read                  *prometheus.Desc

	mu     sync.Mutex
	latest *measurements
	state  []cloudprovider.PriceState
}

// NewCollector returns a Collector without measurements.
func NewCollector() *Collector {
	named := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("karpenter_cloudprovider_instance_type_"+name, help, labels, nil)
	}
	return &Collector{
		cpus:   named("cpu_cores", "vCPUs of the instance type.", "instance_type"),
		memory: named("memory_bytes", "Memory capacity of a node of the instance type.", "instance_type"),
		available: named(
			"offering_available",
			"1 if a NodePool can launch the offering now, else 0.",
			"instance_type",
			"capacity_type",
			"zone",
		),
		price: named(
			"offering_price_estimate",
			"Price per hour that plans use; 0 if it is unknown.",
			"instance_type",
			"capacity_type",
			"zone",
		),
		builtIn: prometheus.NewDesc(
			"dovetail_prices_built_in",
			"1 while the built-in prices are used because those of AWS cannot be read, else 0.",
			[]string{"capacity_type"},
			nil,
		),
		read: prometheus.NewDesc(
			"dovetail_prices_read_timestamp_seconds",
			"When the prices were last read from AWS.",
			[]string{"capacity_type"},
			nil,
		),
	}
}

func (c *Collector) set(v *measurements, state []cloudprovider.PriceState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest, c.state = v, state
}

// Describe names the metrics.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.cpus, c.memory, c.available, c.price, c.builtIn, c.read} {
		to <- d
	}
}

// Collect sends the last measurements.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	view, state := c.latest, c.state
	c.mu.Unlock()
	if view == nil {
		return
	}
	for name, n := range view.cpus {
		to <- metrics.Gauge(c.cpus, n, name)
		to <- metrics.Gauge(c.memory, view.bytes[name], name)
	}
	for at, m := range view.offerings {
		to <- metrics.Gauge(c.available, flag(m.available), at.instanceType, at.capacityType, at.zone)
		to <- metrics.Gauge(c.price, m.price, at.instanceType, at.capacityType, at.zone)
	}
	for _, s := range state {
		to <- metrics.Gauge(c.builtIn, flag(s.BuiltIn()), s.CapacityType)
		if !s.Read.IsZero() {
			to <- metrics.Gauge(c.read, float64(s.Read.Unix()), s.CapacityType)
		}
	}
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
