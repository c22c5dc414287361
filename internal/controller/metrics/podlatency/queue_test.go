package podlatency

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod takes a place in the queue until it has been measured, and not if it ran when it was first seen.
func TestPodsThatRanBeforeAreNotQueued(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{Phase: phase}}
	}
	p := &Pods{waiting: map[types.NamespacedName]wait{{Namespace: "shop", Name: "seen-pending"}: {}}}
	for _, tt := range []struct {
		pod  *corev1.Pod
		want bool
	}{
		{pod("new", corev1.PodPending), true},
		{pod("seen-pending", corev1.PodRunning), true},
		{pod("ran-before", corev1.PodRunning), false},
	} {
		if got := p.concerns(tt.pod); got != tt.want {
			t.Errorf("pod %s, %s, is queued: %t", tt.pod.Name, tt.pod.Status.Phase, got)
		}
	}
}
