package podlatency

import (
	"context"
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
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// patience bounds how long a scrape waits for the cache.
const patience = 10 * time.Second

// Collector tells of every pod where it is, and of those that wait for how long. It works that out when asked, so that
// nothing is left behind by pods that are gone. Only the leader tells, lest each pod is there once for every replica.
type Collector struct {
	cache     client.Reader
	decisions *Decisions
	now       func() time.Time
	log       *slog.Logger
	leading   atomic.Bool

	state                                   *prometheus.Desc
	unbound, unstarted                      *prometheus.Desc
	undecided, placedUnbound, placedWaiting *prometheus.Desc
}

// NewCollector returns a Collector that reads pods and nodes from cache.
func NewCollector(cache client.Reader, decisions *Decisions, now func() time.Time, log *slog.Logger) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("karpenter", "pods", name), help, labels, nil)
	}
	of := []string{"name", "namespace"}
	return &Collector{
		cache: cache, decisions: decisions, now: now, log: log,
		state: desc("state", "Where each pod is and how it is.", "name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch",
			"capacity_type", "instance_type", "phase", "ready", "managed"),
		unbound:       desc("unbound_time_seconds", "Since the pod's creation, until it is bound.", of...),
		unstarted:     desc("unstarted_time_seconds", "Since the pod's creation, until it runs.", of...),
		undecided:     desc("provisioning_scheduling_undecided_time_seconds", "Since the pod was seen to need a node, until a plan says where it goes.", of...),
		placedUnbound: desc("provisioning_unbound_time_seconds", "Since a plan has a place for the pod, until it is bound.", of...),
		placedWaiting: desc("provisioning_unstarted_time_seconds", "Since a plan has a place for the pod, until it runs.", of...),
	}
}

// NeedLeaderElection makes sure that only one process tells.
func (c *Collector) NeedLeaderElection() bool { return true }

// Start lets the Collector tell until ctx ends.
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

// Collect tells of the pods that there are now.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	if !c.leading.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var pods corev1.PodList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&pods, &nodes} {
		if err := c.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			c.log.Error("metrics of pods", "error", err)
			return
		}
	}
	labels := make(map[string]map[string]string, len(nodes.Items))
	for i := range nodes.Items {
		labels[nodes.Items[i].Name] = nodes.Items[i].Labels
	}
	now := c.now()
	for i := range pods.Items {
		pod := &pods.Items[i]
		to <- metrics.Reading(c.state, 1, state(pod, labels[pod.Spec.NodeName])...)
		c.waits(pod, now, to)
	}
}

// state are the values of the labels of pods_state, in their order.
func state(pod *corev1.Pod, node map[string]string) []string {
	_, managed := node[karpv1.LabelNodePool]
	return []string{
		pod.Name, pod.Namespace, owner(pod), pod.Spec.NodeName, fmt.Sprint(pod.Spec.NodeName != ""),
		node[karpv1.LabelNodePool], node[corev1.LabelTopologyZone], node[corev1.LabelArchStable], node[karpv1.LabelCapacityType], node[corev1.LabelInstanceTypeStable],
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

// waits tells for how long the pod has waited for what it still waits for.
func (c *Collector) waits(pod *corev1.Pod, now time.Time, to chan<- prometheus.Metric) {
	if !snapshot.Active(pod) || pod.Status.Phase != corev1.PodPending {
		return
	}
	known := c.decisions.Of(pod.UID)
	tell := func(desc *prometheus.Desc, since time.Time, waiting bool) {
		if waiting && !since.IsZero() {
			to <- metrics.Reading(desc, now.Sub(since).Seconds(), pod.Name, pod.Namespace)
		}
	}
	unbound := pod.Spec.NodeName == ""
	tell(c.unstarted, pod.CreationTimestamp.Time, true)
	tell(c.unbound, pod.CreationTimestamp.Time, unbound)
	tell(c.undecided, known.Seen, unbound && known.Decided.IsZero())
	tell(c.placedUnbound, known.Schedulable, unbound)
	tell(c.placedWaiting, known.Schedulable, true)
}
