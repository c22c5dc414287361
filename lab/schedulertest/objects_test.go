package schedulertest_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/schedulertest"
)

// Worlds as objects have what the scenario that binds their pods is about: pods of plans, on nodes that exist there, old ones and new ones.
func TestPlannedWorldsHaveTheNodesOfTheirPods(t *testing.T) {
	placed, launched := 0, 0
	for seed := range uint64(20) {
		w := schedulertest.NewPlannedWorld(seed)
		nodes := map[string]bool{}
		for _, n := range w.Nodes {
			nodes[n.Name] = true
		}
		for _, p := range w.Planned {
			if p.Spec.NodeName != "" || !nodes[p.Status.NominatedNodeName] {
				t.Errorf("seed %d: pod %s is on %q and nominated to %q", seed, p.Name, p.Spec.NodeName, p.Status.NominatedNodeName)
			}
		}
		for _, p := range w.Bound {
			if !nodes[p.Spec.NodeName] {
				t.Errorf("seed %d: pod %s is on %q, which is no node", seed, p.Name, p.Spec.NodeName)
			}
		}
		placed, launched = placed+len(w.Planned), launched+len(w.Launched)
	}
	if placed < 40 || launched < 10 {
		t.Errorf("%d pods of plans and %d new nodes: want more", placed, launched)
	}
}
