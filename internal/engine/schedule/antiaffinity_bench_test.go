package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// alone keeps all pods without a label of its own off the pod's node.
func alone(own string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[own] = ""
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: Host, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: own, Operator: metav1.LabelSelectorOpDoesNotExist},
				}},
			}},
		}}
	}
}

// BenchmarkPodsThatKeepAllOthersAway has as many groups as pods, and each pod is in all groups but one.
func BenchmarkPodsThatKeepAllOthersAway(b *testing.B) {
	for _, n := range []int{125, 250, 500, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pods := make([]*corev1.Pod, n)
			for i := range pods {
				pods[i] = Pod(fmt.Sprintf("pod-%04d", i), Labeled("app", "alone"), alone(fmt.Sprintf("own-%04d", i)))
			}
			s := World([]snapshot.Pool{Pool("general", Types())}, pods...)
			b.ReportAllocs()
			for b.Loop() {
				if p := schedule.Solve(s, schedule.Budget{}); len(p.Launches) != n {
					b.Fatalf("%d launches for %d pods", len(p.Launches), n)
				}
			}
		})
	}
}
