package replace_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A pod that was to grow beyond the room of its node gets a node with room for the size that it wants.
func TestDriftMakesRoomForDeferredResizes(t *testing.T) {
	grows := Pod("grows", Requests("cpu", "1800m"))
	grows.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:               grows.Spec.Containers[0].Name,
		AllocatedResources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")},
	}}
	grows.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
	}}
	if pod, _ := disrupt.DeferredResize([]*corev1.Pod{Pod("other"), grows}); pod != grows {
		t.Fatalf("the pod with a deferred resize is %v", pod)
	}
	s := worldOf([]snapshot.Pool{Pool("p", Types(), AnyBudget)}, DriftedNode("full", "p", 1, grows))
	cmd, left := nextDrift(s, &disrupt.DriftBackoff{})
	if nameOf(cmd) != "full" || len(cmd.Plan.Launches) != 1 {
		t.Fatalf("%q, left %v", nameOf(cmd), left)
	}
	for _, it := range cmd.Plan.Launches[0].InstanceTypes {
		if cpu := it.Allocatable.Cpu(); cpu.Cmp(resource.MustParse("1800m")) < 0 {
			t.Errorf("%s has %s CPUs, the pod wants 1800m", it.Name, cpu)
		}
	}
}
