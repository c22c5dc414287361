package transition

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics of the conditions of one kind. A collector of NewCollector computes the gauges at each scrape.
type Metrics struct {
	kind Kind
	now  func() time.Time
	// own have the kind in their names and the kind's labels; shared are Karpenter's older ones, the same for all kinds,
	// with group and kind as labels.
	own, shared *family

	mu sync.Mutex
	// seen are the last observed conditions of each object.
	seen map[types.NamespacedName]observation
}

// family is one set of metrics.
type family struct {
	// transitions by type and the new status and reason; seconds, by type, old and new status, is how long the old status lasted.
	transitions *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	// termination is the time from an object's deletion until it was gone.
	termination *prometheus.HistogramVec
}

// observation describes what was last seen of an object.
type observation struct {
	uid        types.UID
	deleted    *metav1.Time
	labels     []string // values of the kind's labels
	conditions []metav1.Condition
}

// NewMetrics declares the metrics of a kind in reg.
func NewMetrics(reg prometheus.Registerer, kind Kind, now func() time.Time) (*Metrics, error) {
	m := &Metrics{
		kind: kind, now: now, seen: map[types.NamespacedName]observation{},
		own:    newFamily(kind.prefix(), kind, nil),
		shared: newFamily(sharedPrefix, Kind{Buckets: kind.Buckets}, prometheus.Labels{"group": kind.Group, "kind": kind.Name}),
	}
	for _, c := range []prometheus.Collector{
		m.own.transitions, m.own.seconds, m.own.termination, m.shared.transitions, m.shared.seconds, m.shared.termination,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// newFamily declares metrics with the labels of the kind, and with constant ones.
func newFamily(prefix string, kind Kind, constant prometheus.Labels) *family {
	of := kind.inWords()
	labels := func(own ...string) []string { return append(own, kind.labelNames()...) }
	histogram := func(name, help string, own ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: kind.Buckets, ConstLabels: constant}, labels(own...),
		)
	}
	return &family{
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "status_condition_transitions_total", ConstLabels: constant,
			Help: "Status changes of conditions of " + of + ", by the new status.",
		}, labels("type", "status", "reason")),
		seconds: histogram("status_condition_transition_seconds",
			"How long conditions of "+of+" had a status before it changed to another.", "type", "status", "to_status"),
		termination: histogram("termination_duration_seconds", "Time from the deletion of "+of+" until it was gone."),
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
