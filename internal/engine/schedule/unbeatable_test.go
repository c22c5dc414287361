package schedule

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A plan of one node at the least price that its pods can have is not planned again in other ways. Any other plan is.
func TestAPlanThatCannotBeImprovedIsMadeOnce(t *testing.T) {
	pools := []snapshot.Pool{enginetest.Pool("general", []*catalog.InstanceType{
		enginetest.Type("small", 0.1, "cpu", "4", "memory", "16Gi", "pods", "50"),
		enginetest.Type("large", 0.15, "cpu", "8", "memory", "32Gi", "pods", "50"),
	})}
	requests := func(cpu string) func(*corev1.Pod) { return enginetest.Requests("cpu", cpu) }
	for _, tt := range []struct {
		name string
		pods []*corev1.Pod
		once bool
	}{
		{"one pod", enginetest.Pods(1, "a", requests("1")), true},
		{"one pod of the larger type", enginetest.Pods(1, "a", requests("6")), true},
		{"pods that fill a node", enginetest.Pods(4, "a", requests("1")), true},
		{"pods that leave most of a node unused", enginetest.Pods(2, "a", requests("100m")), true},
		{"one node for what no smaller ones hold", enginetest.Pods(5, "a", requests("1")), true},
		{"two nodes", enginetest.Pods(12, "a", requests("1")), false},
		{"a pod that fits nowhere beside one that does", append(enginetest.Pods(1, "a", requests("1")), enginetest.Pods(1, "b", requests("64"))...), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sv := newSolver(enginetest.World(pools, tt.pods...))
			newPortfolio(sv, attempt{queue: sv.compile(nil)}).plan()
			if once := sv.running.number == 1; once != tt.once {
				t.Errorf("planned %d times, want once: %v", sv.running.number, tt.once)
			}
		})
	}
}
