// Package computed serves gauges that have a series for each pod or node, computed at each scrape. A hundred thousand
// series as objects of Prometheus' client take a gigabyte and many seconds; as text, a series takes no more memory than
// its line.
package computed

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
)

// Send is called for a series. The labels are the values of the gauge's labels, in their order; they are read before it
// returns.
type Send func(value float64, labels ...string)

// Gauge is a metric with the type gauge. Its series are computed from a W: what was read of the cluster for a scrape.
type Gauge[W any] struct {
	Name, Help string
	Labels     []string
	// Each sends all series. No two have equal labels.
	Each func(w W, send Send)
}

// Collector reports gauges while the process leads, so that each object has one series. Deleted objects leave nothing
// behind.
type Collector[W any] struct {
	gauges []Gauge[W]
	read   func() (W, error)
	failed func(error)

	descriptions []*prometheus.Desc
	lines        []*line
	leading      atomic.Bool
}

// New returns a Collector of gauges. It calls read once for each scrape; if that returns an error, it calls failed, and
// the scrape has no series.
func New[W any](gauges []Gauge[W], read func() (W, error), failed func(error)) *Collector[W] {
	c := &Collector[W]{gauges: gauges, read: read, failed: failed}
	for _, g := range gauges {
		c.descriptions = append(c.descriptions, prometheus.NewDesc(g.Name, g.Help, g.Labels, nil))
		c.lines = append(c.lines, newLine(g.Name, g.Labels))
	}
	return c
}

// Always makes the Collector report whether the process leads or not, for what only a process that leads has series of.
func (c *Collector[W]) Always() *Collector[W] {
	c.leading.Store(true)
	return c
}

// NeedLeaderElection makes sure that only one process reports.
func (c *Collector[W]) NeedLeaderElection() bool { return true }

// Start makes the Collector report until ctx is done.
func (c *Collector[W]) Start(ctx context.Context) error {
	c.leading.Store(true)
	<-ctx.Done()
	c.leading.Store(false)
	return nil
}

// Describe implements prometheus.Collector.
func (c *Collector[W]) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descriptions {
		to <- d
	}
}

// Collect implements prometheus.Collector, for formats that are not text.
func (c *Collector[W]) Collect(to chan<- prometheus.Metric) {
	w, ok := c.world()
	if !ok {
		return
	}
	for i, g := range c.gauges {
		g.Each(w, func(value float64, labels ...string) { to <- metrics.Gauge(c.descriptions[i], value, valid(labels)...) })
	}
}

// valid are the labels with what is no UTF-8 replaced, as in text: a single one would fail the whole scrape.
func valid(labels []string) []string {
	if !slices.ContainsFunc(labels, func(l string) bool { return !utf8.ValidString(l) }) {
		return labels
	}
	out := make([]string, len(labels))
	for i, l := range labels {
		out[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	return out
}

// WriteText writes what Collect sends, in the text format of Prometheus, and a HELP and TYPE also for gauges without
// series. Series are not sorted. Memory: that of a line.
func (c *Collector[W]) WriteText(to io.Writer) error {
	w, ok := c.world()
	var buffer []byte
	for i, g := range c.gauges {
		if err := inventory.WriteHeader(to, inventory.Metric{Name: g.Name, Help: g.Help, Type: "gauge"}); err != nil {
			return err
		}
		if !ok {
			continue
		}
		var err error
		g.Each(w, func(value float64, labels ...string) {
			if err == nil {
				buffer = c.lines[i].format(buffer, value, labels)
				_, err = to.Write(buffer)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// world returns what the series are computed from, and whether there are any.
func (c *Collector[W]) world() (w W, ok bool) {
	if !c.leading.Load() {
		return w, false
	}
	w, err := c.read()
	if err != nil {
		c.failed(err)
	}
	return w, err == nil
}
