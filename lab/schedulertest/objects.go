package schedulertest

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// topologySeeds is the seed of the first of the worlds of propertytest.SchedulerWorld, here and in the tests.
const topologySeeds = 3_000_000

// PlannedWorld is a generated cluster as objects, with the nodes of its plan.
type PlannedWorld struct {
	// Namespaces are those of the pods, by name, with their labels.
	Namespaces map[string]map[string]string
	// Nodes are the existing ones and those of the plan, all Ready.
	Nodes []*corev1.Node
	// Bound are the pods that have a node, with those of DaemonSets. Planned are the pending ones for which the plan has a node: each is
	// nominated to that, which kube-scheduler then tries first. Rejected pods are left out: the tests compare them in process.
	Bound, Planned []*corev1.Pod
	// Launched are the names of the plan's new nodes.
	Launched []string
}

// NewPlannedWorld is the world of a seed, with its plan: one of those that the tests of this package carry out in process.
func NewPlannedWorld(seed uint64) PlannedWorld {
	r := rand.New(rand.NewPCG(topologySeeds+seed, 3))
	s := propertytest.SchedulerWorld(func() byte { return byte(r.Uint32()) })
	cluster, planned := propertytest.Launched(s, schedule.Solve(s, schedule.Budget{}))
	w := PlannedWorld{Namespaces: s.Namespaces}
	for _, n := range cluster.Nodes {
		node := nodeObject(n, n.Name, n.Allocatable)
		node.ObjectMeta = metav1.ObjectMeta{
			Name: node.Name, Labels: node.Labels, UID: types.UID(fmt.Sprintf("node-%d-%s", seed, node.Name)), CreationTimestamp: metav1.Now(),
		}
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}}
		w.Nodes = append(w.Nodes, node)
		if n.Existing == nil {
			w.Launched = append(w.Launched, n.Name)
		}
		for _, p := range n.Pods {
			bound := podObject(p, seed)
			bound.Spec.NodeName = n.Name
			w.Bound = append(w.Bound, bound)
		}
	}
	for _, p := range s.Pods {
		if node, has := planned[p]; has {
			pending := podObject(p, seed)
			pending.Status.NominatedNodeName = node
			w.Planned = append(w.Planned, pending)
		}
	}
	return w
}

// podObject is the pod as the API server would have it. Nothing owns it: the owners of generated pods do not exist.
func podObject(p *corev1.Pod, seed uint64) *corev1.Pod {
	out := p.DeepCopy()
	out.ObjectMeta = metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, UID: types.UID(fmt.Sprintf("pod-%d-%s", seed, p.Name)),
		CreationTimestamp: metav1.Now(),
	}
	if p.DeletionTimestamp != nil {
		grace := int64(time.Hour / time.Second)
		out.DeletionGracePeriodSeconds = &grace
		out.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Hour)}
	}
	out.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if p.Spec.NodeName != "" {
		out.Status.Phase = corev1.PodRunning
	}
	out.Spec.SchedulerName, out.Spec.RestartPolicy = corev1.DefaultSchedulerName, corev1.RestartPolicyAlways
	for i := range out.Spec.Containers {
		out.Spec.Containers[i].Image = "example.com/app"
	}
	return out
}
