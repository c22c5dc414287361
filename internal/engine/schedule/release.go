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
		if sv.shareSpent(q.class) {
			continue
		}
		began := sv.steps
		for _, g := range q.class.Levels()[len(q.class.Levels())-1].Groups() {
			if !seen[g] {
				seen[g] = true
				sv.steps += len(planned)
				changed = sv.topology.Release(g, planned) || changed
			}
		}
		if q.class.ManyTerms() {
			sv.chargeSteps(q.class, sv.steps-began)
		}
	}
	if changed {
		sv.generation++
	}
	return changed
}

// intrusions finds the spreads whose pods are too many once nodes for other pods make a domain. It keeps such nodes out of there; where
// that cannot be, the run is repeated with all such domains counted. It returns whether it is to be. No pod is placed in this run any
// more.
//
// Cost: planned nodes, for each domain in which only nodes for other pods can be launched.
func (sv *solver) intrusions() (repeat bool) {
	if sv.countForeign || sv.bins.Len() == 0 {
		return false
	}
	var planned []topology.NewNode
	for _, g := range sv.topology.Groups() {
		if !g.HasForeign() {
			continue
		}
		if planned == nil {
			planned = sv.bins.NewNodes()
		}
		for _, i := range sv.topology.Intruders(g, planned) {
			kept, checked := sv.bins.KeepOut(i)
			if sv.steps += stepsPerCheck * checked; !kept {
				sv.countForeign = true
				return true
			}
			planned = sv.bins.NewNodes()
		}
	}
	return false
}
