package schedule

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// The check whether a pod of a class fits a bin or a node runs millions of times per plan, so it must not allocate.
func TestCheckingForRoomAllocatesNothing(t *testing.T) {
	kinds := map[string][]func(*corev1.Pod){
		"plain": {enginetest.Labeled("app", "plain")},
		"picky": {enginetest.Labeled("app", "picky"), enginetest.Selects(enginetest.Zone, "z1")},
		"zonal": {
			enginetest.Labeled("app", "zonal"),
			enginetest.Selects(enginetest.Zone, "z1"),
			enginetest.Spread(enginetest.Zone, 50, "zonal"),
		},
		"apart":  {enginetest.Labeled("app", "apart"), enginetest.Apart(enginetest.Host, "apart")},
		"spread": {enginetest.Labeled("app", "spread"), enginetest.Spread(enginetest.Host, 1, "spread")},
		"port":   {enginetest.Labeled("app", "port"), enginetest.HostPort("", 8080, corev1.ProtocolTCP)},
		"huge":   {enginetest.Labeled("app", "huge"), enginetest.Requests("cpu", "7")},
	}
	var pods []*corev1.Pod
	for name, edit := range kinds {
		for i := range 4 {
			pods = append(pods, enginetest.Pod(fmt.Sprintf("%s-%d", name, i), edit...))
		}
	}
	s := enginetest.World([]snapshot.Pool{enginetest.Pool("general", enginetest.Types())}, pods...)
	s.Nodes = append(s.Nodes, enginetest.Node("n1", "general"), enginetest.Node("n2", "general"))
	sv := newSolver(s)
	r := sv.begin(attempt{queue: sv.compile(nil)})
	r.placeAll(r.start())
	if sv.bins.Len() == 0 {
		t.Fatal("there is no bin to check")
	}
	yes, no := 0, 0
	for _, c := range r.classes {
		for i, b := range sv.bins.All() {
			if n := testing.AllocsPerRun(10, func() {
				if _, why := sv.bins.Grow(b, c.Class, c.Levels()[0], bin.BelowCeiling); why == nil {
					yes++
				} else {
					no++
				}
			}); n > 0 {
				t.Errorf("checking bin %d for a pod of %s allocates %v times", i, c.Pod().Name, n)
			}
		}
		for _, n := range sv.nodes.All() {
			if allocated := testing.AllocsPerRun(10, func() { sv.nodes.CanJoin(n, c.Class, c.Levels()[0]) }); allocated > 0 {
				t.Errorf("checking node %s for a pod of %s allocates %v times", n.Source().Name, c.Pod().Name, allocated)
			}
		}
	}
	if yes == 0 || no == 0 {
		t.Errorf("%d times there was room and %d times none: one of the results was not tested", yes, no)
	}
}
