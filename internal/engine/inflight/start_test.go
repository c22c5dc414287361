package inflight_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The last look at the pods, between the taint and the first deletion or launch.
func TestPodsThatDropACommand(t *testing.T) {
	pod := func(name string, change ...func(*corev1.Pod)) corev1.Pod {
		out := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
		for _, c := range change {
			c(&out)
		}
		return out
	}
	protected := func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} }
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	}
	terminated := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	const empty, drifted, underutilized = karpv1.DisruptionEmpty, karpv1.DisruptionDrifted, karpv1.DisruptionUnderutilized
	bound := disrupt.Command{Reason: karpv1.DisruptionUnhealthy, Bound: new(5 * time.Minute)}
	for _, tt := range []struct {
		name    string
		command disrupt.Command
		bounded bool // the node's drain is
		pod     corev1.Pod
		drops   bool
	}{
		{name: "a pod of the decision", command: disrupt.Command{Reason: underutilized}, pod: pod("known")},
		{name: "a pod that has come", command: disrupt.Command{Reason: underutilized}, pod: pod("new"), drops: true},
		{name: "a daemon that has come", command: disrupt.Command{Reason: underutilized}, pod: pod("new", daemon)},
		{name: "a pod that came and terminated", command: disrupt.Command{Reason: underutilized}, pod: pod("new", terminated)},
		{name: "a pod that has become protected", command: disrupt.Command{Reason: drifted}, pod: pod("known", protected), drops: true},
		{name: "the drain has a deadline", command: disrupt.Command{Reason: drifted}, bounded: true, pod: pod("known", protected)},
		{name: "it has, and a pod has come", command: disrupt.Command{Reason: drifted}, bounded: true, pod: pod("new"), drops: true},
		{
			name: "consolidation respects protected pods all the same", command: disrupt.Command{Reason: underutilized}, bounded: true,
			pod: pod("known", protected), drops: true,
		},
		{
			name: "the deadline holds for repairs, too", command: disrupt.Command{Reason: karpv1.DisruptionUnhealthy}, bounded: true,
			pod: pod("known", protected),
		},
		{name: "a repair bounds the drain", command: bound, pod: pod("known", protected)},
		{name: "it does, and a pod has come", command: bound, pod: pod("new"), drops: true},
		{name: "an empty node has a daemon", command: disrupt.Command{Reason: empty}, pod: pod("known", daemon)},
		{name: "an empty node is empty no more", command: disrupt.Command{Reason: empty}, pod: pod("known"), drops: true},
		{
			name: "an empty node has a daemon that is protected", command: disrupt.Command{Reason: empty}, bounded: true,
			pod: pod("known", daemon, protected), drops: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			known := pod("known")
			c := &disrupt.Candidate{Node: &snapshot.Node{Pods: []*corev1.Pod{&known}, Bounded: tt.bounded}}
			if got := inflight.ChangedPod(&tt.command, c, []corev1.Pod{tt.pod}, now); (got != nil) != tt.drops {
				t.Errorf("dropped because of %v, want %v", got, tt.drops)
			}
		})
	}
}
