package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// release lets the spreads of waiting pods go on without domains in which nothing can be launched after all, once
// nothing else lets a pod be placed: limits, ports or volumes may have kept new nodes out of them. The queue is the
// waiting pods. It returns whether anything changed.
//
// Cost: existing and planned nodes, for each domain of these spreads that has no pods.
func (sv *solver) release(queue []*queuedPod) bool {
	seen, changed := map[*topology.Group]bool{}, false
	if slices.ContainsFunc(queue, func(q *queuedPod) bool { return q.class.whole != nil }) {
		return false // the run is repeated without the division
	}
	planned := sv.bins.NewNodes()
	for _, q := range queue {
		for _, g := range q.class.Levels()[len(q.class.Levels())-1].Groups() {
			if !seen[g] {
				seen[g] = true
				changed = sv.topology.Release(g, planned) || changed
			}
		}
	}
	if changed {
		sv.generation++
	}
	return changed
}
