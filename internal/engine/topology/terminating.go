package topology

import (
	"slices"
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
// keeps others away itself: as long as it is there, it may keep them away, too. Nor does it for followers that keep away from such pods, or
// that such a pod in its domain keeps away: they may have to wait for one to be gone, and then the one that they follow is gone as well.
func (r *Registry) CountsPod(g *Group, n *Node, pod *corev1.Pod) bool {
	switch {
	case snapshot.Terminal(pod), r.leavesWith(n, pod):
		return false
	case !snapshot.Terminating(pod):
		return true
	case g.typ == Spread || g.claim != "":
		return false
	case g.typ == Affinity:
		return !r.endsSoon(pod) || !g.apart && !n.Deleting && len(RequiredAntiAffinity(pod)) == 0 && !r.isBarredFrom(g, n)
	}
	return snapshot.DaemonOwned(pod) || !r.endsSoon(pod) // the next pod of a DaemonSet comes to the same node
}

// waitsForEnd reports whether the pod keeps away from some that terminate and are about to be gone.
//
// Cost: the pods that terminate, for each of its terms; all pods on nodes, the first time.
func (r *Registry) waitsForEnd(pod *corev1.Pod) bool {
	terms := RequiredAntiAffinity(pod)
	if len(terms) == 0 || len(r.almostGone()) == 0 {
		return false
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool {
		r.steps += len(r.almostGone())
		g := r.term(AntiAffinity, pod, &t)
		return slices.ContainsFunc(r.almostGone(), func(other runningPod) bool { return g.selects(other.pod) })
	})
}

// bar is an anti-affinity of pods that are about to be gone, with the domains of these.
type bar struct {
	g       *Group
	domains map[string]bool
}

// barsOf are those that keep the pod out of domains until then, by number; nil if there are none.
//
// Cost: the different terms of pods that terminate; all pods on nodes, the first time.
func (r *Registry) barsOf(pod *corev1.Pod) (numbers []int) {
	if r.bars == nil {
		r.bars = r.findBars()
	}
	r.steps += len(r.bars)
	for i, b := range r.bars {
		if b.g.selects(pod) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

func (r *Registry) findBars() []bar {
	out, index := []bar{}, map[*Group]int{}
	for _, other := range r.almostGone() {
		for _, g := range r.declaredBy(other.pod) {
			domain, has := g.Domain(other.node)
			if !has {
				continue
			}
			i, known := index[g]
			if !known {
				i = len(out)
				index[g], out = i, append(out, bar{g, map[string]bool{}})
			}
			out[i].domains[domain] = true
		}
	}
	return out
}

// isBarredFrom reports whether the group's pods may have to wait until a pod in some domain of the node is gone.
func (r *Registry) isBarredFrom(g *Group, n *Node) bool {
	return slices.ContainsFunc(g.bars, func(i int) bool {
		domain, has := n.Domain(r.bars[i].g.key)
		return has && r.bars[i].domains[domain]
	})
}

// almostGone are the pods on nodes that terminate and are about to be gone.
func (r *Registry) almostGone() []runningPod {
	if r.endSoon == nil {
		r.endSoon = []runningPod{}
		for _, n := range r.nodes {
			r.steps += len(n.Pods)
			for _, pod := range n.Pods {
				if snapshot.Terminating(pod) && !snapshot.Terminal(pod) && r.endsSoon(pod) {
					r.endSoon = append(r.endSoon, runningPod{pod, n})
				}
			}
		}
	}
	return r.endSoon
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
