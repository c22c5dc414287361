package eventfilter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestIgnoreHeartbeats(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	before := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1", Labels: map[string]string{"zone": "a"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: since, LastTransitionTime: since},
			},
		},
	}
	tests := []struct {
		name   string
		change func(n *corev1.Node)
		want   bool
	}{
		{"the kubelet reports the same again", func(*corev1.Node) {}, false},
		{"the same version, as a resync sends it", func(n *corev1.Node) { n.ResourceVersion = "1" }, true},
		{"a condition has another status", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		{"a condition has another reason", func(n *corev1.Node) { n.Status.Conditions[0].Reason = "KubeletReady" }, true},
		{"a condition was false in between", func(n *corev1.Node) {
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since.Add(time.Second))
		}, true},
		{"one more condition", func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{}) }, true},
		{"a device plugin has registered", func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1") }, true},
		{"label", func(n *corev1.Node) { n.Labels["zone"] = "b" }, true},
		{"taint", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, true},
		{"provider ID", func(n *corev1.Node) { n.Spec.ProviderID = "aws:///a/i-1" }, true},
		{"volume attached", func(n *corev1.Node) { n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"} }, true},
		{"booted again", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "b" }, true},
		{"deletion", func(n *corev1.Node) { n.DeletionTimestamp = &since }, true},
		{"another node of its name", func(n *corev1.Node) { n.UID = "b" }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after := before.DeepCopy()
			after.ResourceVersion = "2"
			after.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(since.Add(5 * time.Minute))
			tt.change(after)
			if got := IgnoreHeartbeats().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tt.want {
				t.Errorf("passes: %v, want %v", got, tt.want)
			}
		})
	}
	t.Run("updates of other objects pass", func(t *testing.T) {
		var other client.Object = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
		if !IgnoreHeartbeats().Update(event.UpdateEvent{ObjectOld: other, ObjectNew: &corev1.Pod{}}) {
			t.Error("a pod's update is dropped")
		}
	})
}
