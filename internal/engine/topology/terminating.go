package topology

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// usualStart sets how long a new node usually takes until it runs pods. Waiting that long for the place of a pod that
// terminates is no slower than launching a node.
const usualStart = time.Minute

// CountsPod reports whether a pod on the node, which the group selects or which declares it, counts as far as its own
// state is concerned. kube-scheduler counts a terminating pod for affinity and anti-affinity until it is gone, and for
// spread not at all.
//
// Two kinds are treated as gone: those that leave their place to a pod soon, since their grace period is about to end,
// and those that are drained from a node that is being removed. The first kind still counts for pods that follow it, but for one that
// keeps others away itself: as long as it is there, it may keep them away, too.
func (r *Registry) CountsPod(g *Group, n *Node, pod *corev1.Pod) bool {
	switch {
	case snapshot.Terminal(pod), r.leavesWith(n, pod):
		return false
	case !snapshot.Terminating(pod):
		return true
	case g.typ == Spread || g.claim != "":
		return false
	case g.typ == Affinity:
		return !r.endsSoon(pod) || !n.Deleting && len(RequiredAntiAffinity(pod)) == 0
	}
	return snapshot.DaemonOwned(pod) || !r.endsSoon(pod) // the next pod of a DaemonSet comes to the same node
}

// leavesWith reports whether the pod runs for as long as its node exists, and this plan moves what keeps the node: a DaemonSet's pod on a
// node that is being deleted is drained last, and is made again on no other.
func (r *Registry) leavesWith(n *Node, pod *corev1.Pod) bool {
	return n.Deleting && snapshot.DaemonOwned(pod) && !r.staysFor(n)
}

// endsSoon reports whether the pod will be gone by the time at which a new node could take its place. A pod with a
// grace period that finished long ago is stuck.
func (r *Registry) endsSoon(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.Sub(r.now).Abs() < usualStart
}
