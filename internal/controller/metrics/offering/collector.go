package offering

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// Collector shows what was last seen, as a whole: a type that is not sold any more is gone, and no scrape sees half of a view.
type Collector struct {
	cpus, memory, available, price *prometheus.Desc
	builtIn, read                  *prometheus.Desc

	mu    sync.Mutex
	view  *view
	state []cloudprovider.PriceState
}

// NewCollector returns a Collector that has seen nothing.
func NewCollector() *Collector {
	named := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("karpenter_cloudprovider_instance_type_"+name, help, labels, nil)
	}
	return &Collector{
		cpus:      named("cpu_cores", "vCPUs of an instance type.", "instance_type"),
		memory:    named("memory_bytes", "Memory of an instance type, as a node of it has it.", "instance_type"),
		available: named("offering_available", "Whether any node pool can buy the instance type so at the moment.", "instance_type", "capacity_type", "zone"),
		price:     named("offering_price_estimate", "Price per hour as plans are made with; 0 if none is known.", "instance_type", "capacity_type", "zone"),
		builtIn:   prometheus.NewDesc("dovetail_prices_built_in", "Whether the prices that ship with the program are used, because the cloud's cannot be read.", []string{"capacity_type"}, nil),
		read:      prometheus.NewDesc("dovetail_prices_read_timestamp_seconds", "When the cloud's prices were last read.", []string{"capacity_type"}, nil),
	}
}

func (c *Collector) show(v *view, state []cloudprovider.PriceState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view, c.state = v, state
}

// Describe names the metrics.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.cpus, c.memory, c.available, c.price, c.builtIn, c.read} {
		to <- d
	}
}

// Collect tells what was last seen.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	view, state := c.view, c.state
	c.mu.Unlock()
	if view == nil {
		return
	}
	for name, n := range view.cpus {
		to <- metrics.Reading(c.cpus, n, name)
		to <- metrics.Reading(c.memory, view.bytes[name], name)
	}
	for at, m := range view.places {
		to <- metrics.Reading(c.available, flag(m.available), at.instanceType, at.capacityType, at.zone)
		to <- metrics.Reading(c.price, m.price, at.instanceType, at.capacityType, at.zone)
	}
	for _, s := range state {
		to <- metrics.Reading(c.builtIn, flag(s.BuiltIn()), s.CapacityType)
		if !s.Read.IsZero() {
			to <- metrics.Reading(c.read, float64(s.Read.Unix()), s.CapacityType)
		}
	}
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
