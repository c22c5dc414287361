package assess

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxRepacks limits how many times nodes are added to those that stay. Nearly always one plan is enough; a second keeps the nodes of
// pods that fit nowhere else.
const maxRepacks = 3

// repack is new nodes for all pods.
type repack struct {
	// snapshot has the pods to plan, and the nodes that stay.
	snapshot *snapshot.Snapshot
	plan     schedule.Plan
	// hourly holds what new nodes and those that stay cost, bound the least that they can cost, in $/h.
	hourly, bound float64
	nodes         int
	// stuck counts the nodes that stay because their pods fit on no new node.
	stuck int
}

// repack plans new nodes for the pods of all nodes that a NodePool could launch again. Other nodes stay, with their pods; so do nodes
// without a known price, which would count as nothing before, and as something after.
//
// Cost: a plan for all pods, and at most maxRepacks.
func (a *assessment) repack(f *future) repack {
	out, stays := repack{}, a.staying(f)
	for range maxRepacks {
		out.snapshot = emptied(f, stays)
		out.plan = schedule.Solve(out.snapshot, a.settings.Budget)
		stuck := nodesOf(out.plan.Rejected, stays)
		if len(stuck) == 0 {
			break
		}
		for _, name := range stuck {
			stays[name] = true
		}
		out.stuck += len(stuck)
	}
	kept, nodes := cost(out.snapshot, a.prices)
	stats := out.plan.Stats
	out.hourly = kept + stats.HourlyCost + float64(len(out.plan.Launches))*a.prices.overhead
	out.bound = kept + stats.LowerBound
	out.nodes = nodes + len(out.plan.Launches)
	return out
}

// staying are the nodes that no plan replaces. Pods of node groups are planned only if Settings.NodeGroups requests it.
func (a *assessment) staying(f *future) map[string]bool {
	pools := map[string]bool{}
	for i := range f.Pools {
		pools[f.Pools[i].NodePool.Name] = true
	}
	out := map[string]bool{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		_, priced := a.prices.of(n)
		ours := n.Claim != "" && pools[n.Pool] || n.Claim == "" && a.settings.NodeGroups
		if !ours || !n.Launched || !priced {
			out[n.Name] = true
		}
	}
	return out
}

// emptied returns the cluster with only the nodes that stay; the pods of the others are to be planned.
func emptied(f *future, stays map[string]bool) *snapshot.Snapshot {
	next := *f.Snapshot
	goes := func(n snapshot.Node) bool { return !stays[n.Name] }
	next.Pods = podsOf(slices.DeleteFunc(slices.Clone(f.Nodes), func(n snapshot.Node) bool { return !goes(n) }))
	next.Nodes = slices.DeleteFunc(slices.Clone(f.Nodes), goes)
	left := &future{Snapshot: &next}
	left.countUse()
	return left.Snapshot
}

// nodesOf are the nodes of pods that cannot be scheduled, besides those that stay anyway.
func nodesOf(rejected []schedule.Rejection, stays map[string]bool) (out []string) {
	for i := range rejected {
		if name := rejected[i].Pod.Spec.NodeName; name != "" && !stays[name] && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// podsOf are the pods of nodes that would need another node.
func podsOf(nodes []snapshot.Node) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range nodes {
		for _, p := range nodes[i].Pods {
			if snapshot.Reschedulable(p) && snapshot.Active(p) {
				out = append(out, p)
			}
		}
	}
	return out
}
