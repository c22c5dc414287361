package refusal

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// short reports whether the pod is in a gang for which too few nodes have come up, since EC2 had no capacity for another, for example:
// kube-scheduler binds none of its pods, and the nodes that there are say nothing of them.
//
// Cost: linear in the nodes and in what they were launched for, once per gang.
func (x *Search) short(pod *corev1.Pod) bool {
	if len(x.PodGroups) == 0 {
		return false
	}
	if x.groups == nil {
		groups := snapshot.ReadGroups(x.Snapshot)
		x.groups, x.shortGroups = &groups, map[*snapshot.Group]bool{}
	}
	g := x.groups.Of(pod)
	if g == nil || !g.Gang {
		return false
	}
	short, known := x.shortGroups[g]
	if !known {
		short = g.Need(0) > x.nodesCame(g)
		x.shortGroups[g] = short
	}
	return short
}

// nodesCame is how many of the group's pods without a node have one that was launched for them and has come up.
func (x *Search) nodesCame(g *snapshot.Group) (n int) {
	up := map[string]bool{}
	for i := range x.Nodes {
		if node := &x.Nodes[i]; node.Initialized {
			for uid := range strings.SplitSeq(node.LaunchedFor, ",") {
				up[uid] = true
			}
		}
	}
	for _, pod := range x.Waiting() {
		if x.groups.Of(pod) == g && !g.Has(pod) && up[string(pod.UID)] {
			n++
		}
	}
	return n
}
