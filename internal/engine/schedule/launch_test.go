package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// A list of all types is most of the memory of a launch, so equal launches share it. What a launch requests is its own.
func TestEqualLaunchesShareTheirTypes(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 4 {
		pods = append(pods, Pod(fmt.Sprint("apart-", i), Labeled("app", "apart"), Requests("cpu", "1"), Apart(Host, "apart")))
	}
	p := schedule.Solve(World([]snapshot.Pool{Pool("general", Types())}, pods...), schedule.Budget{})
	if len(p.Launches) != 4 {
		t.Fatalf("there are %d launches", len(p.Launches))
	}
	first, last := &p.Launches[0], &p.Launches[3]
	if &first.InstanceTypes[0] != &last.InstanceTypes[0] {
		t.Error("each launch has a list of its own")
	}
	delete(first.Requests, corev1.ResourceCPU)
	if cpu := last.Requests[corev1.ResourceCPU]; cpu.Value() != 1 {
		t.Errorf("a launch for 1 cpu requests %v after another one was changed", cpu.String())
	}
}
