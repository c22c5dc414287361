package podlatency

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/computed"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// scrapeTimeout bounds how long a scrape waits for the cache; it is Prometheus' default timeout.
const scrapeTimeout = 10 * time.Second

// Config describes what the collector reads.
type Config struct {
	Cache client.Reader
	// Pods are the pods of the informers; nil reads them from Cache.
	Pods      cluster.Pods
	Decisions *Decisions
	Now       func() time.Time
	Log       *slog.Logger
}

// world describes what the series of a scrape are computed from.
type world struct {
	pods []*corev1.Pod
	// nodes are the labels of each node, by its name.
	nodes map[string]map[string]string
	// pending are the pods that wait for a node, or to run.
	pending []waitingPod
	now     time.Time
}

// waitingPod is a pod with what plans decided about it.
type waitingPod struct {
	*corev1.Pod
	known   Decision
	dynamic string
}

func (p *waitingPod) unbound() bool { return p.Spec.NodeName == "" }

// NewCollector returns a collector of the state of every pod, and of how long pending pods have waited.
func NewCollector(cfg Config) *computed.Collector[*world] {
	if cfg.Pods == nil {
		cfg.Pods = cluster.ReadPods(cfg.Cache)
	}
	return computed.New(gauges(), cfg.read, func(err error) { cfg.Log.Error("collecting the metrics of pods", "error", err) })
}

func (c *Config) read() (*world, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	w := &world{now: c.Now()}
	var nodes corev1.NodeList
	var err error
	w.pods, err = c.Pods.List(ctx)
	if err := errors.Join(err, c.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy)); err != nil {
		return nil, err
	}
	w.nodes = make(map[string]map[string]string, len(nodes.Items))
	for i := range nodes.Items {
		w.nodes[nodes.Items[i].Name] = nodes.Items[i].Labels
	}
	for _, pod := range w.pods {
		if snapshot.Active(pod) && pod.Status.Phase == corev1.PodPending {
			w.pending = append(w.pending, waitingPod{pod, c.Decisions.Of(pod.UID), metrics.DynamicResources(pod)})
		}
	}
	return w, nil
}

func gauges() []computed.Gauge[*world] {
	name := func(suffix string) string { return prometheus.BuildFQName("karpenter", "pods", suffix) }
	of := []string{"name", "namespace"}
	withDynamic := []string{"name", "namespace", metrics.LabelDynamicResources}
	waiting := func(suffix, help string, labels []string, since func(*waitingPod) (time.Time, bool)) computed.Gauge[*world] {
		return computed.Gauge[*world]{Name: name(suffix), Help: help, Labels: labels, Each: waits(len(labels), since)}
	}
	return []computed.Gauge[*world]{
		{
			Name: name("state"), Help: "State of each pod: its node, phase and owner.", Each: sendStates,
			Labels: []string{
				"name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch", "capacity_type", "instance_type", "phase", "ready",
				"managed",
			},
		},
		waiting("unbound_time_seconds", "Time since the pod's creation, until it is bound.", withDynamic,
			func(p *waitingPod) (time.Time, bool) { return p.CreationTimestamp.Time, p.unbound() }),
		waiting("unstarted_time_seconds", "Time since the pod's creation, until it runs.", of,
			func(p *waitingPod) (time.Time, bool) { return p.CreationTimestamp.Time, true }),
		waiting("provisioning_scheduling_undecided_time_seconds",
			"Time since the pod was first seen to need a node, until the first plan for it.", of,
			func(p *waitingPod) (time.Time, bool) { return p.known.Seen, p.unbound() && p.known.Decided.IsZero() }),
		waiting("provisioning_unbound_time_seconds", "Time since a plan schedules the pod, until it is bound.", withDynamic,
			func(p *waitingPod) (time.Time, bool) { return p.known.Schedulable, p.unbound() }),
		waiting("provisioning_unstarted_time_seconds", "Time since a plan schedules the pod, until it runs.", of,
			func(p *waitingPod) (time.Time, bool) { return p.known.Schedulable, true }),
	}
}

// waits sends how long each pending pod has waited for something. The labels are its name and namespace, and dynamic if there is a third.
func waits(labels int, since func(*waitingPod) (begin time.Time, waits bool)) func(*world, computed.Send) {
	return func(w *world, send computed.Send) {
		for i := range w.pending {
			p := &w.pending[i]
			if begin, waiting := since(p); waiting && !begin.IsZero() {
				values := [...]string{p.Name, p.Namespace, p.dynamic}
				send(w.now.Sub(begin).Seconds(), values[:labels]...)
			}
		}
	}
}

func sendStates(w *world, send computed.Send) {
	for _, pod := range w.pods {
		values := state(pod, w.nodes[pod.Spec.NodeName])
		send(1, values[:]...)
	}
}

// state are the values of the labels of pods_state, in their order.
func state(pod *corev1.Pod, node map[string]string) [13]string {
	_, managed := node[karpv1.LabelNodePool]
	return [...]string{
		pod.Name, pod.Namespace, owner(pod), pod.Spec.NodeName, strconv.FormatBool(pod.Spec.NodeName != ""),
		node[karpv1.LabelNodePool], node[corev1.LabelTopologyZone], node[corev1.LabelArchStable], node[karpv1.LabelCapacityType],
		node[corev1.LabelInstanceTypeStable],
		string(pod.Status.Phase), strconv.FormatBool(ready(pod)), strconv.FormatBool(managed),
	}
}

// owner is the path of the pod's controller in the API, empty if it has none.
func owner(pod *corev1.Pod) string {
	o := metav1.GetControllerOfNoCopy(pod)
	if o == nil {
		return ""
	}
	return "/apis/" + o.APIVersion + "/namespaces/" + pod.Namespace + "/" + strings.ToLower(o.Kind) + "s/" + o.Name
}
