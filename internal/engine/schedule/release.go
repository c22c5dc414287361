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

// intrusions finds the spreads whose pods are too many once nodes for other pods make a domain, and has the next runs of this
// plan count such domains. It returns whether there are any. The run has ended.
//
// Cost: planned nodes, for each domain in which only nodes for other pods can be launched.
func (sv *solver) intrusions() bool {
	var groups []*topology.Group
	for _, g := range sv.topology.Groups() {
		if g.HasForeign() {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 || sv.bins.Len() == 0 {
		return false
	}
	planned, found := sv.bins.NewNodes(), false
	for _, g := range groups {
		if sv.topology.Intrudes(g, planned) && !slices.Contains(sv.foreign, g) {
			sv.foreign, found = append(sv.foreign, g), true
		}
	}
	return found
}
