// Package nodes measures what each node has and what its pods request of it. The values are computed at each scrape, so that deleted
// nodes leave nothing behind.
package nodes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/computed"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// scrapeTimeout bounds how long a scrape waits for the cache; it is Prometheus' default timeout.
const scrapeTimeout = 10 * time.Second

// Config describes what a Collector reads.
type Config struct {
	Cache client.Reader
	// Pods are the pods of the informers; nil reads them from Cache.
	Pods cluster.Pods
	Now  func() time.Time
	Log  *slog.Logger
	// Labels are the keys of labels of nodes that the metrics have, too; the part after the slash is the name.
	Labels []string
}

// world describes what the series of a scrape are computed from.
type world struct {
	nodes []node
	// available and requested are of all nodes.
	available, requested corev1.ResourceList
	now                  time.Time
}

// node is a Node with the values of its labels in the metrics, and what its pods add up to.
type node struct {
	*corev1.Node
	// claim is nil for a node that is not managed. grace is how long after its expireAfter it is deleted.
	claim  *karpv1.NodeClaim
	grace  time.Duration
	labels []string
	usage
}

// NewCollector returns a collector of each node.
func NewCollector(cfg Config) *computed.Collector[*world] {
	if cfg.Pods == nil {
		cfg.Pods = cluster.ReadPods(cfg.Cache)
	}
	ofNode, keys := cfg.labels()
	read := func() (*world, error) { return cfg.read(keys) }
	return computed.New(gauges(ofNode), read, func(err error) { cfg.Log.Error("collecting the metrics of nodes", "error", err) })
}

// labels are the labels of metrics of a node, and the keys of the labels of nodes that the first of them are of.
func (c *Config) labels() (ofNode, keys []string) {
	keys = slices.Sorted(slices.Values(c.Labels))
	for _, key := range keys {
		ofNode = append(ofNode, labelName(key))
	}
	return append(ofNode, "node_name", "phase", "managed"), keys
}

// gauges are the metrics of nodes with these labels.
func gauges(ofNode []string) []computed.Gauge[*world] {
	ofResource := append(slices.Clone(ofNode), "resource_type")
	amounts := func(name, help string, of func(*node) corev1.ResourceList) computed.Gauge[*world] {
		return computed.Gauge[*world]{Name: "karpenter_" + name, Help: help, Labels: ofResource, Each: sendAmounts(of)}
	}
	return append(expirationGauges(ofNode),
		amounts("nodes_allocatable", "Allocatable of a node, in cores, bytes or pieces.",
			func(n *node) corev1.ResourceList { return n.Status.Allocatable }),
		amounts("nodes_system_overhead", "Capacity of a node less its allocatable.", overhead),
		amounts("nodes_total_pod_requests", "Requests of the pods on a node, without those of DaemonSets.",
			func(n *node) corev1.ResourceList { return n.podRequests }),
		amounts("nodes_total_pod_limits", "Limits of the pods on a node, without those of DaemonSets.",
			func(n *node) corev1.ResourceList { return n.podLimits }),
		amounts("nodes_total_daemon_requests", "Requests of the pods of DaemonSets on a node.",
			func(n *node) corev1.ResourceList { return n.daemonRequests }),
		amounts("nodes_total_daemon_limits", "Limits of the pods of DaemonSets on a node.",
			func(n *node) corev1.ResourceList { return n.daemonLimits }),
		computed.Gauge[*world]{
			Name: "karpenter_nodes_current_lifetime_seconds", Help: "Age of a node.", Labels: ofNode, Each: sendAges,
		},
		computed.Gauge[*world]{
			Name: "karpenter_cluster_utilization_percent", Help: "Requests of all pods, as a percentage of what all nodes have.",
			Labels: []string{"resource_type"}, Each: sendUtilization,
		},
	)
}

// labelName is the name of the metrics' label for a label of nodes.
func labelName(key string) string {
	return strings.NewReplacer("-", "_", ".", "_").Replace(key[strings.LastIndexByte(key, '/')+1:])
}

// usage describes what the pods of one node add up to.
type usage struct{ podRequests, podLimits, daemonRequests, daemonLimits corev1.ResourceList }

// read reads what a scrape needs. Cost: one pass over nodes, NodeClaims and pods.
func (c *Config) read(keys []string) (*world, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	pods, err := c.Pods.List(ctx)
	if err != nil {
		return nil, err
	}
	w, err := c.readNodes(keys)
	if err != nil {
		return nil, err
	}
	used := usageByNode(pods)
	for i := range w.nodes {
		n := &w.nodes[i]
		n.usage = used[n.Name]
		add(w.available, n.Status.Allocatable)
		add(w.requested, n.podRequests)
		add(w.requested, n.daemonRequests)
	}
	return w, nil
}

// readNodes reads nodes, without their pods.
func (c *Config) readNodes(keys []string) (*world, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var nodes corev1.NodeList
	var claims karpv1.NodeClaimList
	var pools karpv1.NodePoolList
	if err := errors.Join(c.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy), c.Cache.List(ctx, &claims, client.UnsafeDisableDeepCopy),
		c.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy)); err != nil {
		return nil, err
	}
	of := make(map[string]*karpv1.NodeClaim, len(claims.Items))
	for i := range claims.Items {
		of[claims.Items[i].Status.NodeName] = &claims.Items[i]
	}
	grace := graces(pools.Items)
	w := &world{nodes: make([]node, len(nodes.Items)), available: corev1.ResourceList{}, requested: corev1.ResourceList{}, now: c.Now()}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		w.nodes[i] = node{Node: n, claim: of[n.Name], grace: grace[n.Labels[karpv1.LabelNodePool]], labels: labelsOf(n, keys)}
	}
	return w, nil
}

// amounts describes what a pod requests, and its limits.
type amounts struct{ requests, limits corev1.ResourceList }

func usageByNode(pods []*corev1.Pod) map[string]usage {
	out := map[string]usage{}
	of := snapshot.NewRequestCache(func(pod *corev1.Pod) amounts { return amounts{snapshot.Requests(pod), limitsOf(pod)} })
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
		a := of.Of(pod)
		add(requests, a.requests)
		add(limits, a.limits)
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

// labelsOf are the values of a node's labels in the metrics, with room for that of resource_type.
func labelsOf(n *corev1.Node, keys []string) []string {
	labels := make([]string, 0, len(keys)+4)
	for _, key := range keys {
		labels = append(labels, n.Labels[key])
	}
	return append(labels, n.Name, string(n.Status.Phase), strconv.FormatBool(n.Labels[karpv1.LabelNodePool] != ""))
}

// overhead returns what a node keeps for itself of the resources that it offers.
func overhead(n *node) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, capacity := range n.Status.Capacity {
		if allocatable, known := n.Status.Allocatable[name]; known {
			capacity = capacity.DeepCopy()
			capacity.Sub(allocatable)
			out[name] = capacity
		}
	}
	return out
}

func sendAmounts(of func(*node) corev1.ResourceList) func(*world, computed.Send) {
	return func(w *world, send computed.Send) {
		for i := range w.nodes {
			n := &w.nodes[i]
			for name, amount := range of(n) {
				send(amount.AsApproximateFloat64(), append(n.labels, string(name))...)
			}
		}
	}
}

func sendAges(w *world, send computed.Send) {
	for i := range w.nodes {
		send(w.now.Sub(w.nodes[i].CreationTimestamp.Time).Seconds(), w.nodes[i].labels...)
	}
}

func sendUtilization(w *world, send computed.Send) {
	for name, have := range w.available {
		if total := have.AsApproximateFloat64(); total > 0 {
			requested := w.requested[name]
			send(100*requested.AsApproximateFloat64()/total, string(name))
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
