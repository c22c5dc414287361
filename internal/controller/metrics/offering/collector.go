package offering

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/computed"
)

// Collector serves the last measurements as a whole: removed types disappear, and no scrape sees a mixture. It writes text: there are
// tens of thousands of series, which are most of what a scrape costs.
type Collector struct {
	*computed.Collector[reading]

	mu     sync.Mutex
	latest reading
}

// reading describes what the last look found, in the order in which it is served.
type reading struct {
	types     []string
	offerings []offeringID
	view      *measurements
	prices    []cloudprovider.PriceState
}

// NewCollector returns a Collector without measurements.
func NewCollector() *Collector {
	c := &Collector{}
	ofType := func(name, help string, value func(v *measurements, instanceType string) float64) computed.Gauge[reading] {
		return computed.Gauge[reading]{
			Name: "karpenter_cloudprovider_instance_type_" + name, Help: help, Labels: []string{"instance_type"},
			Each: func(r reading, send computed.Send) {
				for _, name := range r.types {
					send(value(r.view, name), name)
				}
			},
		}
	}
	ofOffering := func(name, help string, value func(offeringState) float64) computed.Gauge[reading] {
		return computed.Gauge[reading]{
			Name: "karpenter_cloudprovider_instance_type_offering_" + name, Help: help,
			Labels: []string{"instance_type", "capacity_type", "zone"},
			Each: func(r reading, send computed.Send) {
				for _, at := range r.offerings {
					send(value(r.view.offerings[at]), at.instanceType, at.capacityType, at.zone)
				}
			},
		}
	}
	c.Collector = computed.New([]computed.Gauge[reading]{
		ofType("cpu_cores", "vCPUs of the instance type.", func(v *measurements, name string) float64 { return v.cpus[name] }),
		ofType("memory_bytes", "Memory capacity of a node of the instance type.",
			func(v *measurements, name string) float64 { return v.bytes[name] }),
		ofOffering("available", "1 if a NodePool can launch the offering now, else 0.",
			func(o offeringState) float64 { return flag(o.available) }),
		ofOffering("price_estimate", "Price per hour that plans use; 0 if it is unknown.", func(o offeringState) float64 { return o.price }),
		{
			Name: "dovetail_prices_built_in", Labels: []string{"capacity_type"},
			Help: "1 while the built-in prices are used because those of AWS cannot be read, else 0.",
			Each: func(r reading, send computed.Send) {
				for _, s := range r.prices {
					send(flag(s.BuiltIn()), s.CapacityType)
				}
			},
		},
		{
			Name: "dovetail_prices_read_timestamp_seconds", Labels: []string{"capacity_type"}, Help: "When the prices were last read from AWS.",
			Each: func(r reading, send computed.Send) {
				for _, s := range r.prices {
					if !s.Read.IsZero() {
						send(float64(s.Read.Unix()), s.CapacityType)
					}
				}
			},
		},
	}, c.read, func(error) {}).Always() // only the leader measures
	return c
}

func (c *Collector) set(v *measurements, prices []cloudprovider.PriceState) {
	order := func(a, b offeringID) int {
		return cmp.Or(cmp.Compare(a.instanceType, b.instanceType), cmp.Compare(a.capacityType, b.capacityType), cmp.Compare(a.zone, b.zone))
	}
	r := reading{
		types: slices.Sorted(maps.Keys(v.cpus)), offerings: slices.SortedFunc(maps.Keys(v.offerings), order), view: v, prices: prices,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = r
}

// read returns the last measurements; it never fails.
func (c *Collector) read() (reading, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest, nil
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
