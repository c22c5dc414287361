package nodes_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/nodes"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func cpu(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
}

func requesting(requests, limits string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: cpu(requests), Limits: cpu(limits)}}}
	}
}

func finished(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func TestNodes(t *testing.T) {
	node := func(name, pool, capacity, allocatable string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(controllertest.Start)}}
		n.Labels = map[string]string{corev1.LabelTopologyZone: "z1"}
		if pool != "" {
			n.Labels[karpv1.LabelNodePool] = pool
		}
		n.Status.Capacity, n.Status.Allocatable = cpu(capacity), cpu(allocatable)
		return n
	}
	f := controllertest.New(t, node("a", "general", "4", "3500m"), node("foreign", "", "2", "2"),
		controllertest.Pod("web", "a", requesting("500m", "1")), controllertest.Pod("api", "a", requesting("250m", "250m")),
		controllertest.Pod("done", "a", requesting("2", "2"), finished),
		controllertest.Pod("log", "a", requesting("100m", "200m"), controllertest.OwnedByDaemonSet))
	f.Clock = controllertest.Start.Add(time.Minute)
	c := nodes.NewCollector(nodes.Config{
		Cache: f.API, Now: f.Now, Log: slog.New(slog.DiscardHandler), Labels: []string{karpv1.LabelNodePool, corev1.LabelTopologyZone},
	})
	if n := testutil.CollectAndCount(c); n > 0 {
		t.Errorf("%d series without leading", n)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(context.Background())
		go func() { _ = c.Start(ctx) }()
		synctest.Wait()
		const want = `
# HELP karpenter_cluster_utilization_percent Requests of all pods, as a percentage of what all nodes have.
# TYPE karpenter_cluster_utilization_percent gauge
karpenter_cluster_utilization_percent{resource_type="cpu"} 15.454545454545455
# HELP karpenter_nodes_allocatable Allocatable of a node, in cores, bytes or pieces.
# TYPE karpenter_nodes_allocatable gauge
karpenter_nodes_allocatable{managed="false",node_name="foreign",nodepool="",phase="",resource_type="cpu",zone="z1"} 2
karpenter_nodes_allocatable{managed="true",node_name="a",nodepool="general",phase="",resource_type="cpu",zone="z1"} 3.5
# HELP karpenter_nodes_current_lifetime_seconds Age of a node.
# TYPE karpenter_nodes_current_lifetime_seconds gauge
karpenter_nodes_current_lifetime_seconds{managed="false",node_name="foreign",nodepool="",phase="",zone="z1"} 60
karpenter_nodes_current_lifetime_seconds{managed="true",node_name="a",nodepool="general",phase="",zone="z1"} 60
# HELP karpenter_nodes_system_overhead Capacity of a node less its allocatable.
# TYPE karpenter_nodes_system_overhead gauge
karpenter_nodes_system_overhead{managed="false",node_name="foreign",nodepool="",phase="",resource_type="cpu",zone="z1"} 0
karpenter_nodes_system_overhead{managed="true",node_name="a",nodepool="general",phase="",resource_type="cpu",zone="z1"} 0.5
# HELP karpenter_nodes_total_daemon_limits Limits of the pods of DaemonSets on a node.
# TYPE karpenter_nodes_total_daemon_limits gauge
karpenter_nodes_total_daemon_limits{managed="true",node_name="a",nodepool="general",phase="",resource_type="cpu",zone="z1"} 0.2
# HELP karpenter_nodes_total_pod_limits Limits of the pods on a node, without those of DaemonSets.
# TYPE karpenter_nodes_total_pod_limits gauge
karpenter_nodes_total_pod_limits{managed="true",node_name="a",nodepool="general",phase="",resource_type="cpu",zone="z1"} 1.25
# HELP karpenter_nodes_total_pod_requests Requests of the pods on a node, without those of DaemonSets.
# TYPE karpenter_nodes_total_pod_requests gauge
karpenter_nodes_total_pod_requests{managed="true",node_name="a",nodepool="general",phase="",resource_type="cpu",zone="z1"} 0.75
karpenter_nodes_total_pod_requests{managed="true",node_name="a",nodepool="general",phase="",resource_type="pods",zone="z1"} 2
`
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "karpenter_cluster_utilization_percent", "karpenter_nodes_allocatable",
			"karpenter_nodes_current_lifetime_seconds", "karpenter_nodes_system_overhead", "karpenter_nodes_total_daemon_limits",
			"karpenter_nodes_total_pod_limits", "karpenter_nodes_total_pod_requests"); err != nil {
			t.Error(err)
		}
		stop()
		synctest.Wait()
		if n := testutil.CollectAndCount(c); n > 0 {
			t.Errorf("%d series after leading", n)
		}
	})
}
