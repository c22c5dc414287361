package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// awaitTaints has plans ignore taints that something else may remove soon, on nodes with room that nobody comes for: a pod that such a node
// was launched for runs elsewhere, or is gone. kube-scheduler does not know which pods a node was launched for. Of two nodes that come up
// with the taint of a network plugin, the first that loses it gets the pods of the other, and without this those that it was launched for
// get a third. While all pods that a node was launched for wait for it, it takes no others: its taint may never go.
//
// It lasts as long as the nominations: until the node has settled, or its taint is stuck.
//
// Cost: linear in the nodes and the nominations of those with taints; in the pods and the claims if one of these pods is not pending.
func (w *snapshotBuilder) awaitTaints(pending map[types.UID]*corev1.Pod) {
	var tainted []*snapshot.Node
	missing := map[types.UID]bool{}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if len(n.Taints) == 0 || !n.Registered {
			continue
		}
		all := true
		for _, uid := range n.Nominated {
			if pending[uid] == nil {
				missing[uid], all = true, false
			}
		}
		if !all {
			tainted = append(tainted, n)
		}
	}
	if len(tainted) == 0 {
		return
	}
	claims := make(map[types.UID]*karpv1.NodeClaim, len(w.NodeClaims))
	for _, claim := range w.NodeClaims {
		claims[claim.UID] = claim
	}
	absent := w.absentPods(missing)
	for _, n := range tainted {
		gone, elsewhere := absent.from(n)
		var stay []corev1.Taint
		for _, t := range n.Taints {
			keptOff := func(pod *corev1.Pod) bool { return !tolerates(pod, t) }
			if mayBeRemoved(claims[n.ClaimUID], &t) && (gone || slices.ContainsFunc(elsewhere, keptOff)) && !cameBefore(n, keptOff) {
				n.Awaited = append(n.Awaited, t)
			} else {
				stay = append(stay, t)
			}
		}
		if len(n.Awaited) > 0 {
			n.Taints = stay
		}
	}
}

// cameBefore reports whether a pod that a taint keeps off is on the node: then the taint was added later, and is not one that nodes start
// with.
func cameBefore(n *snapshot.Node, keptOff func(*corev1.Pod) bool) bool {
	return slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool {
		return !snapshot.DaemonOwned(pod) && !snapshot.Mirror(pod) && keptOff(pod)
	})
}

func tolerates(pod *corev1.Pod, t corev1.Taint) bool {
	_, blocked := snapshot.UntoleratedHard(pod.Spec.Tolerations, []corev1.Taint{t})
	return !blocked
}

// absentPods are pods that nodes were launched for and that are not pending. Those that are neither found waiting nor on a node are gone.
type absentPods struct {
	missing, waiting map[types.UID]bool
	on               map[types.UID]podOnNode
}

type podOnNode struct {
	pod  *corev1.Pod
	node *snapshot.Node
}

func (w *snapshotBuilder) absentPods(missing map[types.UID]bool) *absentPods {
	a := &absentPods{missing, map[types.UID]bool{}, map[types.UID]podOnNode{}}
	for _, pod := range w.Pods { // some wait for something else than kube-scheduler, such as the rest of a gang
		if pod.Spec.NodeName == "" && missing[pod.UID] && snapshot.Active(pod) {
			a.waiting[pod.UID] = true
		}
	}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		for _, pod := range n.Pods {
			if missing[pod.UID] {
				a.on[pod.UID] = podOnNode{pod, n}
			}
		}
	}
	return a
}

// from reports whether pods that are nominated to the node are gone, and which ones are on other nodes. Those on nodes that are leaving may
// still come.
func (a *absentPods) from(n *snapshot.Node) (gone bool, elsewhere []*corev1.Pod) {
	for _, uid := range n.Nominated {
		at, found := a.on[uid]
		switch {
		case !a.missing[uid]:
		case !found:
			gone = gone || !a.waiting[uid]
		case at.node != n && !at.node.Deleting && !at.node.Disrupting:
			elsewhere = append(elsewhere, at.pod)
		}
	}
	return gone, elsewhere
}
