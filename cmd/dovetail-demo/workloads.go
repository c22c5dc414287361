package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// workload is a Deployment or a Job.
type workload struct {
	namespace, name, kind string
	cpu, memory           string
	selector              map[string]string
	tolerates             string
	// spread is true if its pods are spread over the zones.
	spread bool
	// replicas is how many pods it wants at a time of the day.
	replicas func(hour float64) int
}

// traffic is how many replicas serve the shop: few at night, most at 14:00 and 20:00.
func traffic(least, most int) func(float64) int {
	return func(hour float64) int {
		wave := 0.62*math.Exp(-math.Pow((hour-14)/4.2, 2)) + math.Exp(-math.Pow((hour-20)/2.1, 2))
		return least + int(math.Round(float64(most-least)*min(1, wave)))
	}
}

func always(n int) func(float64) int { return func(float64) int { return n } }

// between wants n pods from one hour to another.
func between(from, to float64, n int) func(float64) int {
	return func(hour float64) int {
		if hour >= from && hour < to {
			return n
		}
		return 0
	}
}

func workloads() []workload {
	batch := map[string]string{"shop.example.com/tier": "batch"}
	return []workload{
		{namespace: "shop", name: "front", cpu: "900m", memory: "1Gi", spread: true, replicas: traffic(6, 30)},
		{namespace: "shop", name: "cart", cpu: "500m", memory: "1Gi", spread: true, replicas: traffic(4, 15)},
		{namespace: "shop", name: "search", cpu: "1800m", memory: "6Gi", replicas: traffic(3, 9)},
		{namespace: "shop", name: "payments", cpu: "400m", memory: "800Mi", spread: true, replicas: always(6)},
		{namespace: "platform", name: "gateway", cpu: "300m", memory: "512Mi", replicas: always(2)},
		{namespace: "platform", name: "metrics", cpu: "1", memory: "7Gi", replicas: always(1)},
		{
			namespace: "data", name: "nightly-report", kind: "Job", cpu: "3500m", memory: "12Gi",
			selector: batch, tolerates: "batch", replicas: between(1, 2.5, 6),
		},
		{
			namespace: "data", name: "recommend", kind: "Job", cpu: "7", memory: "24Gi",
			selector: batch, tolerates: "batch", replicas: between(4, 5.5, 4),
		},
		{
			namespace: "data", name: "catalog-import", kind: "Job", cpu: "1800m", memory: "3Gi",
			selector: batch, tolerates: "batch", replicas: between(11, 11.7, 8),
		},
		// The zone is misspelled.
		{
			namespace: "data", name: "returns-export", cpu: "500m", memory: "1Gi", replicas: between(21.5, 24, 1),
			selector: map[string]string{corev1.LabelTopologyZone: "us-east-1 a"},
		},
	}
}

// scale makes and deletes the pods of the workloads, every ten minutes.
func (w *world) scale() {
	if w.now.Sub(start())%(10*time.Minute) != 0 {
		return
	}
	hour := math.Mod(w.now.Sub(start()).Hours()+24, 24)
	for i := range w.workloads {
		l := &w.workloads[i]
		var has []*corev1.Pod
		for _, p := range w.pods {
			if p.Labels["app"] == l.name {
				has = append(has, p)
			}
		}
		want := l.replicas(hour)
		for n := len(has); n < want; n++ {
			w.addPod(l)
		}
		// Which pods are deleted has nothing to do with where they run.
		slices.SortFunc(has, func(a, b *corev1.Pod) int { return cmp.Compare(fnvOf(a.Name), fnvOf(b.Name)) })
		for _, p := range has[min(want, len(has)):] {
			w.endPod(p)
		}
	}
}

func (w *world) addPod(l *workload) {
	w.count++
	hash := fmt.Sprintf("%08x", fnvOf(l.name))[:8]
	name := fmt.Sprintf("%s-%s-%s", l.name, hash, suffix(w.count))
	owner := metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: l.name + "-" + hash, UID: types.UID(l.name), Controller: new(true),
	}
	labels := map[string]string{"app": l.name, "pod-template-hash": hash}
	if l.kind == "Job" {
		name = fmt.Sprintf("%s-%s", l.name, suffix(w.count))
		owner = metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: l.name, UID: types.UID(l.name), Controller: new(true)}
		delete(labels, "pod-template-hash")
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.namespace, Name: name, UID: types.UID(name), ResourceVersion: w.version(), CreationTimestamp: metav1.NewTime(w.now),
		Labels: labels, OwnerReferences: []metav1.OwnerReference{owner},
	}}
	p.Spec.SchedulerName, p.Spec.NodeSelector = corev1.DefaultSchedulerName, l.selector
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(l.cpu), corev1.ResourceMemory: resource.MustParse(l.memory),
	}}}}
	if l.tolerates != "" {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "shop.example.com/" + l.tolerates, Operator: corev1.TolerationOpExists}}
	}
	if l.spread {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": l.name}},
		}}
	}
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		LastTransitionTime: metav1.NewTime(w.now), Message: "0 nodes are available to it.",
	}}
	w.pods = append(w.pods, p)
}
