package provisioning

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// Pods that run, nearly all of a cluster, take no place in the queue.
func TestOnlyPodsThatNeedANodeAreQueued(t *testing.T) {
	pending := controllertest.Pod("web", "")
	pending.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}
	bound := controllertest.Pod("web", "node-a")
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{{"unschedulable", pending, true}, {"bound", bound, false}} {
		if got := provisionable().Create(event.CreateEvent{Object: tt.pod}); got != tt.want {
			t.Errorf("%s pod is queued when it is first seen: %t", tt.name, got)
		}
		if got := provisionable().Update(event.UpdateEvent{ObjectOld: bound, ObjectNew: tt.pod}); got != tt.want {
			t.Errorf("%s pod is queued when it changes: %t", tt.name, got)
		}
	}
}
