package metrics

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// LabelDynamicResources is a label that is "true" for pods with resource claims and "false" for others.
const LabelDynamicResources = "dynamic_resources"

// DynamicResources is the value of LabelDynamicResources of a pod.
func DynamicResources(pod *corev1.Pod) string {
	return strconv.FormatBool(len(pod.Spec.ResourceClaims) > 0)
}

// Scheduling are the metrics of plans and of pending pods.
type Scheduling struct {
	// Ignored counts how many pods the last plan ignored, because of their spec or their volumes.
	Ignored prometheus.Gauge
	// PendingByZone counts how many pods are bound to a zone, by controller, zone.
	PendingByZone *prometheus.GaugeVec
	// PodDecision, in seconds: from the time a pod was first seen to the first plan for it.
	PodDecision prometheus.Histogram
	// PodBound, by dynamic_resources, and PodStartup, in seconds since the pod's creation.
	PodBound   *prometheus.HistogramVec
	PodStartup prometheus.Summary
	// ProvisioningBound, by dynamic_resources, and ProvisioningStartup, in seconds since a plan assigned the pod to a healthy pool.
	ProvisioningBound   *prometheus.HistogramVec
	ProvisioningStartup prometheus.Histogram
	// StateNodes counts how many nodes the cluster state has, StateSynced 1 while it is synced, StateUnsynced for how many
	// seconds it has not been.
	StateNodes, StateSynced, StateUnsynced prometheus.Gauge
	// Plans shows plans in progress.
	Plans *Plans
}

func newScheduling(d *registrar) Scheduling {
	s := Scheduling{
		PendingByZone: d.gauge(
			"scheduler",
			"pending_pods_by_effective_zone_count",
			`Pending pods by the only zone that they fit in; "flexible" for several, "none" for none.`,
			"controller",
			"zone",
		),
		Plans: newPlans(),
	}
	for _, g := range []struct {
		into                  *prometheus.Gauge
		subsystem, name, help string
	}{
		{&s.Ignored, "scheduler", "ignored_pods_count", "Pods that the last plan ignored, because of their spec or their volumes."},
		{&s.StateNodes, "cluster_state", "node_count", "Nodes in the cluster state."},
		{&s.StateSynced, "cluster_state", "synced", "1 while the cluster state is synced with the API server, else 0."},
		{&s.StateUnsynced, "cluster_state", "unsynced_time_seconds", "For how long the cluster state has not been synced."},
	} {
		*g.into = prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: g.subsystem, Name: g.name, Help: g.help})
		d.register(*g.into)
	}
	for _, h := range []struct {
		into       *prometheus.Histogram
		name, help string
	}{
		{&s.PodDecision, "scheduling_decision_duration_seconds", "Time from when a pod was first seen to the first plan for it."},
		{&s.ProvisioningStartup, "provisioning_startup_duration_seconds", "Time from a plan that schedules the pod until it was ready."},
	} {
		*h.into = prometheus.NewHistogram(
			prometheus.HistogramOpts{Namespace: namespace, Subsystem: "pods", Name: h.name, Help: h.help, Buckets: durationBuckets},
		)
		d.register(*h.into)
	}
	s.PodBound = d.histogram(prometheus.HistogramOpts{
		Subsystem: "pods", Name: "bound_duration_seconds", Buckets: durationBuckets,
		Help: "Time from a pod's creation until it was bound.",
	}, LabelDynamicResources)
	s.ProvisioningBound = d.histogram(prometheus.HistogramOpts{
		Subsystem: "pods", Name: "provisioning_bound_duration_seconds", Buckets: durationBuckets,
		Help: "Time from a plan that schedules the pod until it was bound.",
	}, LabelDynamicResources)
	s.PodStartup = prometheus.NewSummary(prometheus.SummaryOpts{
		Namespace: namespace, Subsystem: "pods", Name: "startup_duration_seconds", Help: "Time from a pod's creation until it was ready.",
		Objectives: map[float64]float64{0: .01, .5: .01, .9: .01, .99: .01, 1: .01},
	})
	d.register(s.PodStartup)
	d.register(s.Plans)
	return s
}

// Plans shows the number of pods and the duration of plans in progress. The values exist only while a plan runs, so
// they are computed at each scrape.
type Plans struct {
	queue, unfinished *prometheus.Desc

	mu      sync.Mutex
	running map[planKey]running
}

type planKey struct{ controller, id string }

type running struct {
	pods int
	took func() time.Duration
}

func newPlans() *Plans {
	labels := []string{"controller", "scheduling_id"}
	return &Plans{
		queue: prometheus.NewDesc(
			prometheus.BuildFQName(namespace, "scheduler", "queue_depth"),
			"Pods of the plan in progress.",
			labels,
			nil,
		),
		unfinished: prometheus.NewDesc(
			prometheus.BuildFQName(namespace, "scheduler", "unfinished_work_seconds"),
			"For how long the plan has been in progress.",
			labels,
			nil,
		),
		running: map[planKey]running{},
	}
}

// Begin shows a plan until done is called. took returns its duration so far.
func (p *Plans) Begin(controller, id string, pods int, took func() time.Duration) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := planKey{controller, id}
	p.running[key] = running{pods, took}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, key)
	}
}

// Describe names the metrics.
func (p *Plans) Describe(to chan<- *prometheus.Desc) {
	to <- p.queue
	to <- p.unfinished
}

// Collect sends the metrics of plans in progress.
func (p *Plans) Collect(to chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, r := range p.running {
		to <- Gauge(p.queue, float64(r.pods), key.controller, key.id)
		to <- Gauge(p.unfinished, r.took().Seconds(), key.controller, key.id)
	}
}

// Gauge is a gauge with its current value, for collectors that compute values at each scrape.
func Gauge(of *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(of, prometheus.GaugeValue, value, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(of, err)
	}
	return m
}
