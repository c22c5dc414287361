package schedule

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// podsPerNode plans with one strategy and lists the pods of each new node.
func podsPerNode(t *testing.T, s *snapshot.Snapshot, how strategy) []string {
	t.Helper()
	sv := newSolver(s)
	o, again := sv.begin(attempt{queue: sv.compile(nil), how: how, ceiling: math.Inf(1)}).plan()
	if again || len(o.Rejected) > 0 {
		t.Fatalf("no plan for all pods: %+v", o)
	}
	var out []string
	for _, l := range o.Launches {
		names := ""
		for _, pod := range l.Pods {
			names += " " + pod.Name
		}
		out = append(out, strings.TrimSpace(names))
	}
	return out
}

// The plain strategies differ in which node takes a pod: the first one, or the one with the fewest pods and of these the
// oldest.
func TestPlainStrategiesChooseNodes(t *testing.T) {
	pools := []snapshot.Pool{enginetest.Pool("general", []*catalog.InstanceType{
		enginetest.Type("only", 0.1, "cpu", "4", "memory", "64Gi", "pods", "50"),
	})}
	small := func(name, cpu string) *corev1.Pod { return enginetest.Pod(name, enginetest.Requests("cpu", cpu)) }
	pods := append(enginetest.Pods(2, "apart", enginetest.Labeled("app", "apart"), enginetest.Requests("cpu", "2"),
		enginetest.Apart(enginetest.Host, "apart")), small("a", "900m"), small("b", "800m"), small("c", "700m"))
	s := enginetest.World(pools, pods...)
	for _, c := range []struct {
		how  strategy
		want string
	}{
		{firstFit, "apart-000 a b, apart-001 c"},
		{leastPods, "apart-000 a c, apart-001 b"},
	} {
		if got := strings.Join(podsPerNode(t, s, c.how), ", "); got != c.want {
			t.Errorf("strategy %d: %s, want %s", c.how, got, c.want)
		}
	}
}
