// Package inventory knows every metric that is registered, also those that have no series yet: their names, types, labels and
// meanings. /metrics and the documentation list them from here.
package inventory

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metric describes a metric.
type Metric struct {
	Name, Help string
	// Type is counter, gauge, histogram or summary; empty if it is unknown.
	Type string
	// Labels are sorted.
	Labels []string
}

// Inner is a registry of Prometheus. New needs one that describes its collectors, too, as those of client_golang do.
type Inner interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// describing is an Inner that describes its collectors.
type describing interface {
	Inner
	prometheus.Collector
}

// Registry is a registry of Prometheus that keeps the type of each metric: a description of client_golang does not have it.
type Registry struct {
	inner describing
	// large are the collectors that write text, apart from inner, which would make objects of all their series.
	large *prometheus.Registry

	mu      sync.Mutex
	types   map[string]string // by name
	writers []textWriter
}

// textWriter is a collector that writes its series as text, one by one. Each of its metrics has HELP and TYPE.
type textWriter interface {
	prometheus.Collector
	WriteText(to io.Writer) error
}

var _ prometheus.Registerer = (*Registry)(nil)

// errNoDescriptions is returned for a registry that is not one of client_golang.
var errNoDescriptions = errors.New("the registry does not describe its metrics")

// New returns a Registry on top of another, which may have metrics already.
func New(inner Inner) (*Registry, error) {
	d, ok := inner.(describing)
	if !ok {
		return nil, errNoDescriptions
	}
	return &Registry{inner: d, large: prometheus.NewRegistry(), types: maps.Clone(libraryTypes)}, nil
}

// Register implements prometheus.Registerer.
func (r *Registry) Register(c prometheus.Collector) error {
	into := prometheus.Registerer(r.inner)
	writer, writes := c.(textWriter)
	if writes {
		into = r.large
	}
	if err := into.Register(c); err != nil {
		return err
	}
	t := typeOf(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if writes {
		r.writers = append(r.writers, writer)
	}
	for _, m := range described(c) {
		r.types[m.Name] = t
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *Registry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *Registry) Unregister(c prometheus.Collector) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writers = slices.DeleteFunc(r.writers, func(w textWriter) bool { return prometheus.Collector(w) == c })
	return r.inner.Unregister(c) || r.large.Unregister(c)
}

// Metrics are all metrics, by name. Where a metric without series has no type here, the type is empty.
func (r *Registry) Metrics() ([]Metric, error) {
	families, err := r.inner.Gather()
	if err != nil {
		return nil, err
	}
	return r.metrics(families), nil
}

// metrics are all metrics, by name, with the types of those families that have series.
func (r *Registry) metrics(families []*dto.MetricFamily) []Metric {
	seen := map[string]string{}
	for _, f := range families {
		seen[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	out := append(described(r.inner), described(r.large)...)
	slices.SortFunc(out, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	out = slices.CompactFunc(out, func(a, b Metric) bool { return a.Name == b.Name })
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range out {
		if t, ok := seen[out[i].Name]; ok {
			out[i].Type = t
		} else {
			out[i].Type = r.types[out[i].Name]
		}
	}
	return out
}

// typeOf is the type of a collector's metrics. A collector of our own computes gauges: values at the time of the scrape.
func typeOf(c prometheus.Collector) string {
	switch c := c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec:
		return "histogram"
	case *prometheus.SummaryVec:
		return "summary"
	case prometheus.Metric:
		return typeOfMetric(c)
	}
	return "gauge"
}

func typeOfMetric(m prometheus.Metric) string {
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		return ""
	}
	switch {
	case out.Counter != nil:
		return "counter"
	case out.Histogram != nil:
		return "histogram"
	case out.Summary != nil:
		return "summary"
	}
	return "gauge"
}

// described are the metrics that a collector describes. Metrics with the same name and other constant labels occur several times.
func described(c prometheus.Collector) []Metric {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		c.Describe(descriptions)
	}()
	var out []Metric
	for d := range descriptions {
		if m, err := parse(d.String()); err == nil {
			out = append(out, m)
		}
	}
	return out
}

// description is the text of a prometheus.Desc, which has no accessors.
var description = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", ` +
	`constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

func parse(text string) (Metric, error) {
	parts := description.FindStringSubmatch(text)
	if parts == nil {
		return Metric{}, fmt.Errorf("not the description of a metric: %s", text)
	}
	name, err := strconv.Unquote(parts[1])
	if err != nil {
		return Metric{}, err
	}
	help, err := strconv.Unquote(parts[2])
	if err != nil {
		return Metric{}, err
	}
	split := func(list string) []string { return strings.FieldsFunc(list, func(c rune) bool { return c == ',' }) }
	var labels []string
	labels = append(labels, split(parts[4])...)
	for _, constant := range split(parts[3]) {
		label, _, _ := strings.Cut(constant, "=")
		labels = append(labels, label)
	}
	slices.Sort(labels)
	return Metric{Name: name, Help: help, Labels: labels}, nil
}
