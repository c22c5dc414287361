// Package nodes measures what each node has and what its pods request of it. The values are computed at each scrape, so that deleted
// nodes leave nothing behind.
package nodes

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// scrapeTimeout bounds how long a scrape waits for the cache; it is Prometheus' default timeout.
const scrapeTimeout = 10 * time.Second

// Collector reports on each node. Only the leader reports, so that each node has one series.
type Collector struct {
	cache client.Reader
	pods  cluster.Pods
	now   func() time.Time
	log   *slog.Logger
	// keys are the label keys of nodes with values in the metrics.
	keys    []string
	leading atomic.Bool

	allocatable, overhead, lifetime, utilization         *prometheus.Desc
	podRequests, podLimits, daemonRequests, daemonLimits *prometheus.Desc
}

// Config is what a Collector reads.
type Config struct {
	Cache client.Reader
	// Pods are those of the informers; nil reads them from Cache.
	Pods cluster.Pods
	Now  func() time.Time
	Log  *slog.Logger
	// Labels are the keys of labels of nodes that the metrics have, too; the part after the slash is the name.
	Labels []string
}

// NewCollector returns a Collector.
func NewCollector(cfg Config) *Collector {
	if cfg.Pods == nil {
		cfg.Pods = cluster.ReadPods{Reader: cfg.Cache}
	}
	keys := slices.Sorted(slices.Values(cfg.Labels))
	var ofNode []string
	for _, key := range keys {
		ofNode = append(ofNode, labelName(key))
	}
	ofNode = append(ofNode, "node_name", "phase", "managed")
	ofResource := append(slices.Clone(ofNode), "resource_type")
	desc := func(name, help string, labels []string) *prometheus.Desc {
		return prometheus.NewDesc("karpenter_"+name, help, labels, nil)
	}
	return &Collector{
		cache: cfg.Cache, pods: cfg.Pods, now: cfg.Now, log: cfg.Log, keys: keys,
		allocatable:    desc("nodes_allocatable", "Allocatable of a node, in cores, bytes or pieces.", ofResource),
		overhead:       desc("nodes_system_overhead", "Capacity of a node less its allocatable.", ofResource),
		podRequests:    desc("nodes_total_pod_requests", "Requests of the pods on a node, without those of DaemonSets.", ofResource),
		podLimits:      desc("nodes_total_pod_limits", "Limits of the pods on a node, without those of DaemonSets.", ofResource),
		daemonRequests: desc("nodes_total_daemon_requests", "Requests of the pods of DaemonSets on a node.", ofResource),
		daemonLimits:   desc("nodes_total_daemon_limits", "Limits of the pods of DaemonSets on a node.", ofResource),
		lifetime:       desc("nodes_current_lifetime_seconds", "Age of a node.", ofNode),
		utilization: desc("cluster_utilization_percent", "Requests of all pods, as a percentage of what all nodes have.",
			[]string{"resource_type"}),
	}
}

// labelName is the name of the metrics' label for a label of nodes.
func labelName(key string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(key[strings.LastIndexByte(key, '/')+1:])
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
	for _, d := range []*prometheus.Desc{
		c.allocatable, c.overhead, c.podRequests, c.podLimits, c.daemonRequests, c.daemonLimits, c.lifetime, c.utilization,
	} {
		to <- d
	}
}

// usage is what the pods of one node add up to.
type usage struct{ podRequests, podLimits, daemonRequests, daemonLimits corev1.ResourceList }

// Collect sends the metrics of the current nodes. Cost: one pass over nodes and pods.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	if !c.leading.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var nodes corev1.NodeList
	pods, err := c.pods.List(ctx)
	if err := errors.Join(err, c.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy)); err != nil {
		c.log.Error("collecting the metrics of nodes", "error", err)
		return
	}
	used := usageByNode(pods)
	allocatable, requested := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		u := used[node.Name]
		c.collectNode(node, u, to)
		add(allocatable, node.Status.Allocatable)
		add(requested, u.podRequests)
		add(requested, u.daemonRequests)
	}
	for _, name := range slices.Sorted(maps.Keys(allocatable)) {
		if have := value(allocatable, name); have > 0 {
			to <- metrics.Gauge(c.utilization, 100*value(requested, name)/have, string(name))
		}
	}
}

func usageByNode(pods []*corev1.Pod) map[string]usage {
	out := map[string]usage{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" || snapshot.Terminal(pod) {
			continue
		}
		u, known := out[pod.Spec.NodeName]
		if !known {
			u = usage{corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}}
			out[pod.Spec.NodeName] = u
		}
		requests, limits := u.podRequests, u.podLimits
		if snapshot.DaemonOwned(pod) {
			requests, limits = u.daemonRequests, u.daemonLimits
		}
		add(requests, snapshot.Requests(pod))
		add(limits, limitsOf(pod))
	}
	return out
}

// limitsOf are the limits of a pod. With overhead, PodLimits may add to the amounts of the pod's own list, which is the cache's.
func limitsOf(pod *corev1.Pod) corev1.ResourceList {
	if len(pod.Spec.Overhead) > 0 && pod.Spec.Resources != nil {
		pod = pod.DeepCopy()
	}
	return resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
}

// collectNode sends the metrics of one node.
func (c *Collector) collectNode(node *corev1.Node, u usage, to chan<- prometheus.Metric) {
	labels := make([]string, 0, len(c.keys)+4)
	for _, key := range c.keys {
		labels = append(labels, node.Labels[key])
	}
	managed := "false"
	if node.Labels[karpv1.LabelNodePool] != "" {
		managed = "true"
	}
	labels = append(labels, node.Name, string(node.Status.Phase), managed)
	to <- metrics.Gauge(c.lifetime, c.now().Sub(node.CreationTimestamp.Time).Seconds(), labels...)
	overhead := corev1.ResourceList{}
	for name, capacity := range node.Status.Capacity {
		if allocatable, known := node.Status.Allocatable[name]; known {
			capacity = capacity.DeepCopy()
			capacity.Sub(allocatable)
			overhead[name] = capacity
		}
	}
	for _, m := range []struct {
		desc   *prometheus.Desc
		values corev1.ResourceList
	}{
		{c.allocatable, node.Status.Allocatable},
		{c.overhead, overhead},
		{c.podRequests, u.podRequests},
		{c.podLimits, u.podLimits},
		{c.daemonRequests, u.daemonRequests},
		{c.daemonLimits, u.daemonLimits},
	} {
		for name := range m.values {
			to <- metrics.Gauge(m.desc, value(m.values, name), append(slices.Clone(labels), string(name))...)
		}
	}
}

// add adds amounts to a sum.
func add(sum, amounts corev1.ResourceList) {
	for name, amount := range amounts {
		total := sum[name].DeepCopy()
		total.Add(amount)
		sum[name] = total
	}
}

// value is an amount in the unit of the metrics: cores, bytes, pieces.
func value(amounts corev1.ResourceList, name corev1.ResourceName) float64 {
	q := amounts[name]
	return q.AsApproximateFloat64()
}
