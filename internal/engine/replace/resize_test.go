package replace_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// growing is a pod that runs with 700m, and waits for its resize to more.
func growing(cpu string) *corev1.Pod {
	grows, controller := Pod("grows", Requests("cpu", cpu)), true
	grows.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "grows", Controller: &controller}}
	grows.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:               grows.Spec.Containers[0].Name,
		AllocatedResources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")},
	}}
	grows.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
		LastTransitionTime: metav1.NewTime(Now()),
	}}
	return grows
}

// A pod that was to grow beyond the room of its node gets a node with room for the size that it wants.
func TestDriftMakesRoomForDeferredResizes(t *testing.T) {
	grows := growing("1800m")
	if pod, _, _ := new(disrupt.ResizeHistory).Next([]*corev1.Pod{Pod("other"), grows}, time.Hour, Now()); pod != grows {
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

// A node is not replaced in vain: no instance type has room for the resize and for what each node runs.
func TestNoNodeIsReplacedForAResizeThatFitsNowhere(t *testing.T) {
	s := worldOf([]snapshot.Pool{Pool("p", Types(), AnyBudget)}, DriftedNode("full", "p", 1, growing("99")))
	cmd, left := nextDrift(s, &disrupt.DriftBackoff{})
	if cmd != nil || len(left) != 1 || !strings.Contains(left[0].Message, "grows") {
		t.Errorf("%q, left %v", nameOf(cmd), left)
	}
}
