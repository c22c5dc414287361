package cluster_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// The latest event of all pods counts, but for those of DaemonSets.
func TestLastPodEvent(t *testing.T) {
	grace := int64(30)
	tests := []struct {
		name   string
		change func(p *corev1.Pod)
		want   time.Duration
	}{
		{"created", func(*corev1.Pod) {}, 0},
		{
			"bound",
			func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: start.Add(time.Minute)}},
				}
			},
			time.Minute,
		},
		{
			"deleted: when it was asked to end, not when it must have ended",
			func(p *corev1.Pod) {
				p.DeletionTimestamp = &metav1.Time{Time: start.Add(5 * time.Minute)}
				p.DeletionGracePeriodSeconds = &grace
			},
			5*time.Minute - 30*time.Second,
		},
		{
			"ended by itself",
			func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodSucceeded
				p.Status.ContainerStatuses = []corev1.ContainerStatus{
					{
						State: corev1.ContainerState{
							Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: start.Add(2 * time.Minute)}},
						},
					},
				}
			},
			2 * time.Minute,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: start}}}
			tt.change(pod)
			older := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: start.Add(-time.Hour)}}}
			daemon := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.Time{Time: start.Add(time.Hour)},
				OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Controller: new(true)}},
			}}
			if got := cluster.LastPodEvent([]*corev1.Pod{older, pod, daemon}).Sub(start); got != tt.want {
				t.Errorf("last event %v after creation, want %v", got, tt.want)
			}
		})
	}
}

func TestNoPodIsNoEvent(t *testing.T) {
	if got := cluster.LastPodEvent(nil); !got.IsZero() {
		t.Errorf("last event %v of no pods", got)
	}
}
