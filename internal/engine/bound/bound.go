// Package bound states what the pods of a cluster cannot cost less than, whatever nodes they run on now.
package bound

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Of is the least that nodes for all pods of managed nodes and for pending pods can cost, with the nodes that nobody may remove, in $/h.
// It ignores what limits have used already, which only lowers it. It costs a plan for all pods.
func Of(s *snapshot.Snapshot) float64 {
	empty := unused(s)
	empty.Pods = slices.Clone(s.Pods)
	pending := make(map[types.UID]bool, len(s.Pods))
	for _, p := range s.Pods {
		pending[p.UID] = true
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Claim == "" || n.Unplannable != "" {
			empty.Nodes = append(empty.Nodes, *n)
			continue
		}
		for _, p := range n.Pods {
			if snapshot.Reschedulable(p) && !pending[p.UID] {
				empty.Pods = append(empty.Pods, p)
			}
		}
	}
	plan := schedule.Solve(&empty, schedule.DefaultBudget())
	return plan.Stats.LowerBound
}

// OfPool is the least that new nodes of one NodePool can cost for the pods that run on its nodes now, in $/h. Pods that such nodes cannot
// hold are left out, which only lowers it. It is false if stop has returned true. It costs a plan for these pods.
func OfPool(s *snapshot.Snapshot, pool string, stop func() bool) (hourly float64, ok bool) {
	empty := unused(s)
	empty.Virtual, empty.Arriving = nil, nil
	empty.Pools = slices.DeleteFunc(empty.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name != pool })
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Pool != pool || n.Claim == "" || n.Unplannable != "" {
			continue
		}
		for _, p := range n.Pods {
			if snapshot.Reschedulable(p) {
				empty.Pods = append(empty.Pods, p)
			}
		}
	}
	budget := schedule.DefaultBudget()
	budget.Stop = stop
	plan := schedule.Solve(&empty, budget)
	return plan.Stats.LowerBound, !plan.Abandoned
}

// unused is a cluster without nodes and pods, of which no limits are used.
func unused(s *snapshot.Snapshot) snapshot.Snapshot {
	empty := *s
	empty.Nodes, empty.Pods, empty.Pools = nil, nil, slices.Clone(s.Pools)
	for i := range empty.Pools {
		empty.Pools[i].Used = corev1.ResourceList{}
	}
	return empty
}
