package transition

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// Metrics of the conditions of one kind. Gauges are computed at each scrape, so that deleted objects leave nothing behind.
type Metrics struct {
	now func() time.Time
	// count is 1 for each condition of each object, current for how long it has had its status.
	count, current *prometheus.Desc
	// terminating is for how long an object has been deleted and still exists.
	terminating *prometheus.Desc
	// transitions by type and the new status and reason; seconds, by type, old and new status, is how long the old status lasted.
	transitions *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	// termination is the time from an object's deletion until it was gone.
	termination *prometheus.HistogramVec

	mu sync.Mutex
	// seen are the last observed conditions of each object.
	seen map[types.NamespacedName]observation
}

// observation is what was last seen of an object.
type observation struct {
	uid        types.UID
	deleted    *metav1.Time
	labels     []string // values of the kind's labels
	conditions []metav1.Condition
}

// NewMetrics declares the metrics of a kind in reg.
func NewMetrics(reg prometheus.Registerer, kind Kind, now func() time.Time) (*Metrics, error) {
	prefix := "operator_" + strings.ToLower(kind.Name) + "_"
	labels := func(own ...string) []string {
		for _, key := range kind.Labels {
			own = append(own, strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(key))
		}
		return own
	}
	gauge := func(name, help string, own ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels(own...), nil)
	}
	histogram := func(name, help string, own ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: kind.Buckets}, labels(own...))
	}
	m := &Metrics{
		now: now, seen: map[types.NamespacedName]observation{},
		count: gauge("status_condition_count", "Conditions of a "+kind.Name+": 1 for their current status.",
			"namespace", "name", "type", "status", "reason"),
		current: gauge("status_condition_current_status_seconds", "For how long a condition of a "+kind.Name+" has had its status.",
			"namespace", "name", "type", "status", "reason"),
		terminating: gauge("termination_current_time_seconds", "Time since the deletion of a "+kind.Name+" that still exists.",
			"namespace", "name"),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "status_condition_transitions_total",
			Help: "Status changes of conditions of a " + kind.Name + ", by the new status.",
		}, labels("type", "status", "reason")),
		seconds: histogram("status_condition_transition_seconds",
			"How long conditions of a "+kind.Name+" had a status before it changed to another.", "type", "status", "to_status"),
		termination: histogram("termination_duration_seconds", "Time from the deletion of a "+kind.Name+" until it was gone."),
	}
	for _, c := range []prometheus.Collector{m, m.transitions, m.seconds, m.termination} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Describe names the gauges.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.count, m.current, m.terminating} {
		to <- d
	}
}

// Collect sends the gauges of all objects.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for name, o := range m.seen {
		for _, c := range o.conditions {
			labels := slices.Concat([]string{name.Namespace, name.Name, c.Type, string(c.Status), c.Reason}, o.labels)
			to <- metrics.Gauge(m.count, 1, labels...)
			to <- metrics.Gauge(m.current, now.Sub(c.LastTransitionTime.Time).Seconds(), labels...)
		}
		if o.deleted != nil {
			to <- metrics.Gauge(m.terminating, now.Sub(o.deleted.Time).Seconds(), append([]string{name.Namespace, name.Name}, o.labels...)...)
		}
	}
}

// changed counts a change of a condition, and measures how long the old status lasted.
func (m *Metrics) changed(o observation, was, is metav1.Condition) {
	m.transitions.WithLabelValues(append([]string{is.Type, string(is.Status), is.Reason}, o.labels...)...).Inc()
	if was.Type != "" {
		m.seconds.WithLabelValues(append([]string{is.Type, string(was.Status), string(is.Status)}, o.labels...)...).
			Observe(is.LastTransitionTime.Sub(was.LastTransitionTime.Time).Seconds())
	}
}

// exchange stores the current observation and returns the previous one; false for a new object.
func (m *Metrics) exchange(name types.NamespacedName, now observation) (observation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.seen[name]
	m.seen[name] = now
	return before, known && before.uid == now.uid
}

// forget removes an object that is gone.
func (m *Metrics) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, known := m.seen[name]; known && o.deleted != nil {
		m.termination.WithLabelValues(o.labels...).Observe(m.now().Sub(o.deleted.Time).Seconds())
	}
	delete(m.seen, name)
}
