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
	// own have the kind in their names and the kind's labels; shared are Karpenter's older ones, the same for all kinds,
	// with group and kind as labels.
	own, shared *family

	mu sync.Mutex
	// seen are the last observed conditions of each object.
	seen map[types.NamespacedName]observation
}

// family is one set of metrics.
type family struct {
	// count is 1 for each condition of each object, current for how long it has had its status.
	count, current *prometheus.Desc
	// terminating is for how long an object has been deleted and still exists.
	terminating *prometheus.Desc
	// transitions by type and the new status and reason; seconds, by type, old and new status, is how long the old status lasted.
	transitions *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	// termination is the time from an object's deletion until it was gone.
	termination *prometheus.HistogramVec
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
	m := &Metrics{
		now: now, seen: map[types.NamespacedName]observation{},
		own:    newFamily("operator_"+strings.ToLower(kind.Name)+"_", kind, nil),
		shared: newFamily("operator_", Kind{Buckets: kind.Buckets}, prometheus.Labels{"group": kind.Group, "kind": kind.Name}),
	}
	for _, c := range []prometheus.Collector{
		m, m.own.transitions, m.own.seconds, m.own.termination, m.shared.transitions, m.shared.seconds, m.shared.termination,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// newFamily declares metrics with the labels of the kind, and with constant ones.
func newFamily(prefix string, kind Kind, constant prometheus.Labels) *family {
	of := "an object"
	if kind.Name != "" {
		of = "a " + kind.Name
		if strings.ContainsRune("AEIO", rune(kind.Name[0])) {
			of = "an " + kind.Name
		}
	}
	labels := func(own ...string) []string {
		for _, key := range kind.Labels {
			own = append(own, strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(key))
		}
		return own
	}
	gauge := func(name, help string, own ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, help, labels(own...), constant)
	}
	histogram := func(name, help string, own ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: kind.Buckets, ConstLabels: constant}, labels(own...),
		)
	}
	return &family{
		count: gauge("status_condition_count", "Conditions of "+of+": 1 for their current status.",
			"namespace", "name", "type", "status", "reason"),
		current: gauge("status_condition_current_status_seconds", "For how long a condition of "+of+" has had its status.",
			"namespace", "name", "type", "status", "reason"),
		terminating: gauge("termination_current_time_seconds", "Time since the deletion of "+of+" that still exists.",
			"namespace", "name"),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "status_condition_transitions_total", ConstLabels: constant,
			Help: "Status changes of conditions of " + of + ", by the new status.",
		}, labels("type", "status", "reason")),
		seconds: histogram("status_condition_transition_seconds",
			"How long conditions of "+of+" had a status before it changed to another.", "type", "status", "to_status"),
		termination: histogram("termination_duration_seconds", "Time from the deletion of "+of+" until it was gone."),
	}
}

// Describe names the gauges.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, f := range []*family{m.own, m.shared} {
		for _, d := range []*prometheus.Desc{f.count, f.current, f.terminating} {
			to <- d
		}
	}
}

// Collect sends the gauges of all objects.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for name, o := range m.seen {
		m.own.collect(to, name, o, now)
		o.labels = nil
		m.shared.collect(to, name, o, now)
	}
}

// collect sends the gauges of one object.
func (f *family) collect(to chan<- prometheus.Metric, name types.NamespacedName, o observation, now time.Time) {
	for _, c := range o.conditions {
		labels := slices.Concat([]string{name.Namespace, name.Name, c.Type, string(c.Status), c.Reason}, o.labels)
		to <- metrics.Gauge(f.count, 1, labels...)
		to <- metrics.Gauge(f.current, now.Sub(c.LastTransitionTime.Time).Seconds(), labels...)
	}
	if o.deleted != nil {
		to <- metrics.Gauge(f.terminating, now.Sub(o.deleted.Time).Seconds(), append([]string{name.Namespace, name.Name}, o.labels...)...)
	}
}

// changed counts a change of a condition, and measures how long the old status lasted.
func (m *Metrics) changed(o observation, was, is metav1.Condition) {
	m.own.changed(o.labels, was, is)
	m.shared.changed(nil, was, is)
}

func (f *family) changed(labels []string, was, is metav1.Condition) {
	f.transitions.WithLabelValues(append([]string{is.Type, string(is.Status), is.Reason}, labels...)...).Inc()
	if was.Type != "" {
		f.seconds.WithLabelValues(append([]string{is.Type, string(was.Status), string(is.Status)}, labels...)...).
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
		took := m.now().Sub(o.deleted.Time).Seconds()
		m.own.termination.WithLabelValues(o.labels...).Observe(took)
		m.shared.termination.WithLabelValues().Observe(took)
	}
	delete(m.seen, name)
}
