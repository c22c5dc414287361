package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// gangsBeside are gangs of three pods, of which the first requests so much CPU, in a cluster with full nodes.
func gangsBeside(nodes, gangs int, first string) *snapshot.Snapshot {
	var pods []*corev1.Pod
	var groups []*schedulingv1beta1.PodGroup
	for i := range gangs {
		name := fmt.Sprintf("train-%03d", i)
		groups = append(groups, Gang(name, 3))
		pods = append(append(pods, gangPods(2, name, i)...), gangPods(1, name+"-first", i, InGroup(name), Requests("cpu", first))...)
	}
	s := World([]snapshot.Pool{Pool("general", Types())}, pods...)
	for i := range nodes {
		n := Node(fmt.Sprintf("node-%d", i), "general")
		n.Pods = []*corev1.Pod{Pod(fmt.Sprintf("runs-%d", i), func(p *corev1.Pod) {
			p.Spec.NodeName = n.Name
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
		})}
		s.Nodes = append(s.Nodes, n)
	}
	return WithGroups(s, groups...)
}

// Whether each gang fits in kube-scheduler's order is found out without the cluster being read for each.
func TestManyGangsWithDifferentPodsAreTriedTogether(t *testing.T) {
	allocated := func(first string) float64 {
		s := gangsBeside(200, 50, first)
		return testing.AllocsPerRun(1, func() { schedule.Solve(s, schedule.Budget{LookaheadSteps: 1}) })
	}
	if equal, different := allocated("1500m"), allocated("500m"); different > 3*equal {
		t.Errorf("%.0f allocations, and %.0f where the pods of a gang are equal", different, equal)
	}
}

// gangs of which none fits on the 2,000 existing nodes
func BenchmarkManyMixedGangs(b *testing.B) {
	s := gangsBeside(2_000, 200, "500m")
	for b.Loop() {
		schedule.Solve(s, schedule.Budget{LookaheadSteps: 1})
	}
}
