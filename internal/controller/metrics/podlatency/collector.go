package podlatency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// scrapeTimeout bounds how long a scrape waits for the cache; it is Prometheus' default timeout.
const scrapeTimeout = 10 * time.Second

// Collector reports the state of every pod, and how long pending pods have waited. It computes the values at each
// scrape, so that deleted pods leave nothing behind. Only the leader reports, so that each pod has one series.
type Collector struct {
	cache     client.Reader
	pods      cluster.Pods
	decisions *Decisions
	now       func() time.Time
	log       *slog.Logger
	leading   atomic.Bool

	state                                   *prometheus.Desc
	unbound, unstarted                      *prometheus.Desc
	undecided, placedUnbound, placedWaiting *prometheus.Desc
}

// Config is what a Collector reads.
type Config struct {
	Cache client.Reader
	// Pods are those of the informers; nil reads them from Cache.
	Pods      cluster.Pods
	Decisions *Decisions
	Now       func() time.Time
	Log       *slog.Logger
}

// NewCollector returns a Collector.
func NewCollector(cfg Config) *Collector {
	if cfg.Pods == nil {
		cfg.Pods = cluster.ReadPods{Reader: cfg.Cache}
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("karpenter", "pods", name), help, labels, nil)
	}
	of := []string{"name", "namespace"}
	withDynamic := []string{"name", "namespace", metrics.LabelDynamicResources}
	return &Collector{
		cache: cfg.Cache, pods: cfg.Pods, decisions: cfg.Decisions, now: cfg.Now, log: cfg.Log,
		state: desc(
			"state",
			"State of each pod: its node, phase and owner.",
			"name",
			"namespace",
			"owner",
			"node",
			"scheduled",
			"nodepool",
			"zone",
			"arch",
			"capacity_type",
			"instance_type",
			"phase",
			"ready",
			"managed",
		),
		unbound:   desc("unbound_time_seconds", "Time since the pod's creation, until it is bound.", withDynamic...),
		unstarted: desc("unstarted_time_seconds", "Time since the pod's creation, until it runs.", of...),
		undecided: desc(
			"provisioning_scheduling_undecided_time_seconds",
			"Time since the pod was first seen to need a node, until the first plan for it.",
			of...),
		placedUnbound: desc("provisioning_unbound_time_seconds", "Time since a plan schedules the pod, until it is bound.", withDynamic...),
		placedWaiting: desc("provisioning_unstarted_time_seconds", "Time since a plan schedules the pod, until it runs.", of...),
	}
}

// NeedLeaderElection makes sure that only one process reports.
func (c *Collector) NeedLeaderElection() bool { return true }

// Start makes the Collector report until ctx is done.
func (c *Collector) Start(ctx context.Context) error {
	c.leading.Store(true)
	<-ctx.Done()
	c.leading.Store(false)
	return nil
}

// Describe names the metrics.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.state, c.unbound, c.unstarted, c.undecided, c.placedUnbound, c.placedWaiting} {
		to <- d
	}
}

// Collect sends the metrics of the current pods.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	if !c.leading.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var nodes corev1.NodeList
	pods, err := c.pods.List(ctx)
	if err := errors.Join(err, c.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy)); err != nil {
		c.log.Error("collecting the metrics of pods", "error", err)
		return
	}
	labels := make(map[string]map[string]string, len(nodes.Items))
	for i := range nodes.Items {
		labels[nodes.Items[i].Name] = nodes.Items[i].Labels
	}
	now := c.now()
	for _, pod := range pods {
		to <- metrics.Gauge(c.state, 1, state(pod, labels[pod.Spec.NodeName])...)
		c.collectWaits(pod, now, to)
	}
}

// state are the values of the labels of pods_state, in their order.
func state(pod *corev1.Pod, node map[string]string) []string {
	_, managed := node[karpv1.LabelNodePool]
	return []string{
		pod.Name, pod.Namespace, owner(pod), pod.Spec.NodeName, fmt.Sprint(pod.Spec.NodeName != ""),
		node[karpv1.LabelNodePool], node[corev1.LabelTopologyZone], node[corev1.LabelArchStable], node[karpv1.LabelCapacityType],
		node[corev1.LabelInstanceTypeStable],
		string(pod.Status.Phase), fmt.Sprint(ready(pod)), fmt.Sprint(managed),
	}
}

// owner is the path of the pod's controller in the API, empty if it has none.
func owner(pod *corev1.Pod) string {
	o := metav1.GetControllerOf(pod)
	if o == nil {
		return ""
	}
	return fmt.Sprintf("/apis/%s/namespaces/%s/%ss/%s", o.APIVersion, pod.Namespace, strings.ToLower(o.Kind), o.Name)
}

// collectWaits sends how long a pending pod has waited.
func (c *Collector) collectWaits(pod *corev1.Pod, now time.Time, to chan<- prometheus.Metric) {
	if !snapshot.Active(pod) || pod.Status.Phase != corev1.PodPending {
		return
	}
	known := c.decisions.Of(pod.UID)
	send := func(desc *prometheus.Desc, since time.Time, waiting bool, more ...string) {
		if waiting && !since.IsZero() {
			to <- metrics.Gauge(desc, now.Sub(since).Seconds(), append([]string{pod.Name, pod.Namespace}, more...)...)
		}
	}
	unbound, dynamic := pod.Spec.NodeName == "", metrics.DynamicResources(pod)
	send(c.unstarted, pod.CreationTimestamp.Time, true)
	send(c.unbound, pod.CreationTimestamp.Time, unbound, dynamic)
	send(c.undecided, known.Seen, unbound && known.Decided.IsZero())
	send(c.placedUnbound, known.Schedulable, unbound, dynamic)
	send(c.placedWaiting, known.Schedulable, true)
}
