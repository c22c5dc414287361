package snapshot_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/randfill"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Pods share some of their parts, in any combination. The requests of each are what they are without a cache.
func TestRequestCacheChangesNothing(t *testing.T) {
	fill := randfill.NewWithSeed(7).NilChance(0.5).NumElements(1, 2).MaxDepth(10).Funcs(func(q *resource.Quantity, c randfill.Continue) {
		*q = *resource.NewMilliQuantity(c.Int63n(1<<40), resource.DecimalSI)
	}, func(name *corev1.ResourceName, c randfill.Continue) {
		*name = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "example.com/gpu"}[c.Intn(3)]
	}, func(c *corev1.PodCondition, more randfill.Continue) {
		reasons := []string{"", corev1.PodReasonInfeasible}
		*c = corev1.PodCondition{Type: corev1.PodResizePending, Reason: reasons[more.Intn(2)], Status: corev1.ConditionTrue}
	})
	random := rand.New(rand.NewPCG(1, 2))
	parts := make([]corev1.Pod, 6)
	for i := range parts {
		fill.Fill(&parts[i])
		for _, list := range [][]corev1.Container{parts[i].Spec.Containers, parts[i].Spec.InitContainers} {
			for j := range list {
				list[j].Name = "a" // the statuses of one pod are those of another's containers
			}
		}
		for _, list := range [][]corev1.ContainerStatus{parts[i].Status.ContainerStatuses, parts[i].Status.InitContainerStatuses} {
			for j := range list {
				list[j].Name = "a"
			}
		}
	}
	of := func() *corev1.Pod { return &parts[random.IntN(len(parts))] }
	computed := 0
	cache := snapshot.NewRequestCache(func(p *corev1.Pod) corev1.ResourceList {
		computed++
		return snapshot.Requests(p)
	})
	const pods = 4000
	for i := range pods {
		pod := &corev1.Pod{}
		pod.Spec.Containers, pod.Spec.InitContainers = of().Spec.Containers, of().Spec.InitContainers
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses = of().Status.ContainerStatuses, of().Status.InitContainerStatuses
		pod.Status.Conditions = of().Status.Conditions
		switch random.IntN(10) {
		case 0:
			pod.Spec.Resources = of().Spec.Resources
		case 1:
			pod.Spec.Overhead = of().Spec.Overhead
		case 2:
			pod.Status.Resources, pod.Status.AllocatedResources = of().Status.Resources, of().Status.AllocatedResources
		}
		if diff := cmp.Diff(snapshot.Requests(pod), cache.Of(pod)); diff != "" {
			t.Fatalf("pod %d (-without +with a cache):\n%s", i, diff)
		}
	}
	if computed > pods*9/10 {
		t.Errorf("%d of %d were computed", computed, pods)
	}
}

// BenchmarkRequestCache is the time for a pod of an owner, with two containers.
func BenchmarkRequestCache(b *testing.B) {
	amounts := corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}}
	pod := &corev1.Pod{}
	for _, name := range []string{"a", "b"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Resources: amounts})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Resources: &amounts})
	}
	for name, requests := range map[string]func(*corev1.Pod) corev1.ResourceList{
		"without": snapshot.Requests,
		"with":    snapshot.NewRequestCache(snapshot.Requests).Of,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				requests(pod)
			}
		})
	}
}
