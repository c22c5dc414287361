package snapshot_test

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// What a pod takes is what Kubernetes' own function returns, with one of pods, whatever its kubelet reports.
func TestRequestsAreThoseOfKubernetes(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "nvidia.com/gpu"}
	amounts := []string{"0", "1", "1000m", "250m", "128Mi", "1Gi", "1.5", "1e3"}
	list := func() corev1.ResourceList {
		if random.IntN(8) == 0 {
			return nil
		}
		out := corev1.ResourceList{}
		for range random.IntN(4) {
			out[names[random.IntN(len(names))]] = resource.MustParse(amounts[random.IntN(len(amounts))])
		}
		return out
	}
	// near is the list itself most of the time, as a kubelet reports it, or another.
	near := func(l corev1.ResourceList) corev1.ResourceList {
		if random.IntN(5) == 0 {
			return list()
		}
		return l.DeepCopy()
	}
	for i := range 20_000 {
		p := &corev1.Pod{}
		for _, name := range []string{"a", "b", "c"}[:random.IntN(4)] {
			c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(), Limits: list()}}
			p.Spec.Containers = append(p.Spec.Containers, c)
			status := corev1.ContainerStatus{Name: name}
			if random.IntN(2) == 0 {
				status.AllocatedResources = near(c.Resources.Requests)
			}
			if random.IntN(2) == 0 {
				status.Resources = &corev1.ResourceRequirements{Requests: near(c.Resources.Requests)}
			}
			if random.IntN(4) > 0 {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
			}
		}
		switch random.IntN(12) {
		case 0:
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: list()}}}
		case 1:
			p.Spec.Overhead = list()
		case 2:
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list()}
		case 3:
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
			}}
		case 4:
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "a", AllocatedResources: list()}}
		}
		want := helpers.PodRequests(p.DeepCopy(), helpers.PodResourcesOptions{
			UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
		})
		want[corev1.ResourcePods] = resource.MustParse("1")
		before := p.DeepCopy()
		got := snapshot.Requests(p)
		same := len(got) == len(want)
		for name, q := range want {
			found, has := got[name]
			same = same && has && q.Cmp(found) == 0
		}
		if !same {
			t.Fatalf("pod %d: %v, want %v, of %+v", i, got, want, p)
		}
		for name, q := range got { // nobody's memory but its own
			q.Add(resource.MustParse("1"))
			got[name] = q
		}
		for k := range p.Spec.Containers {
			for name, q := range before.Spec.Containers[k].Resources.Requests {
				if is := p.Spec.Containers[k].Resources.Requests[name]; q.Cmp(is) != 0 {
					t.Fatalf("pod %d has changed: %s is %s", i, name, is.String())
				}
			}
		}
	}
}
