package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// judgeNominations finds the pending pods that lost their place on an initialized node to others, the nodes that are too young to report
// whether they suit the pods that they were launched for, and the taints that pods without a place wait for. Pods stay nominated to such a
// node, unless their place is taken, or the node is too small for them and always will be. Nor is it disrupted before it can have reported.
//
// Cost: linear in the nodes, and in the pods that they were launched for if any pod is pending.
func (w *snapshotBuilder) judgeNominations() {
	pending := map[types.UID]*corev1.Pod{}
	for _, pod := range w.snap.Waiting() {
		pending[pod.UID] = pod
	}
	if len(pending) == 0 {
		return
	}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if !n.Initialized || n.LaunchedFor == "" {
			continue
		}
		for uid := range strings.SplitSeq(n.LaunchedFor, ",") {
			pod := pending[types.UID(uid)]
			if pod == nil {
				continue
			}
			switch {
			case !w.facts.Settings.FitsAlone(n, pod):
				n.TooSmallFor = append(n.TooSmallFor, pod.UID)
			case w.placeTaken(n, pod):
				n.TakenFrom = append(n.TakenFrom, pod.UID)
			case !n.SettledAt.IsZero():
				// Its nomination is over, or soon. Before it is known whether the node refuses the pod, the node must not go as an empty one:
				// another would come for the same pod.
				n.NominatedUntil = latest(n.NominatedUntil, n.SettledAt.Add(refusal.ReportDelay))
			}
		}
		// The claim may not state yet that the node is initialized: the caches of Nodes and NodeClaims are not in step.
		n.Settling = len(n.Nominated) > 0 && (n.SettledAt.IsZero() || !w.facts.Now.After(n.SettledAt))
	}
	w.awaitTaints(pending)
}

// dropBoundElsewhere removes pods that run on nodes that stay from the nominations of initialized nodes, after pending pods have got the
// places of such pods. If one of them has to move, a node has room for it or not, as for any other pod. Nodes that are not initialized
// keep theirs: a command launches them for pods that still run.
//
// Cost: linear in the pods, if an initialized node has nominations.
func (w *snapshotBuilder) dropBoundElsewhere() {
	var running map[types.UID]bool
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if !n.Initialized || len(n.Nominated) == 0 {
			continue
		}
		if running == nil {
			running = w.runningOnNodesThatStay()
		}
		n.Nominated = slices.DeleteFunc(n.Nominated, func(uid types.UID) bool { return running[uid] })
	}
}

// runningOnNodesThatStay are the pods on nodes that are not leaving.
func (w *snapshotBuilder) runningOnNodesThatStay() map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if n.Deleting || n.Disrupting {
			continue
		}
		for _, pod := range n.Pods {
			out[pod.UID] = out[pod.UID] || pod.Spec.NodeName != "" // others are only nominated by kube-scheduler
		}
	}
	return out
}

// placeTaken reports whether the pods that have come to a node keep off a pod that it was launched for, and that fits
// there alone. Pods that come with the node were planned, and take no place.
func (w *snapshotBuilder) placeTaken(n *snapshot.Node, pod *corev1.Pod) bool {
	ordinary := func(other *corev1.Pod) bool { return !snapshot.DaemonOwned(other) && !snapshot.Mirror(other) }
	if !slices.ContainsFunc(n.Pods, ordinary) {
		return false
	}
	if !w.facts.Settings.Fits(n, pod) {
		return true
	}
	ports := resources.HostPorts(pod)
	return slices.ContainsFunc(n.Pods, func(other *corev1.Pod) bool {
		return ordinary(other) && (w.keepsOff(pod, other) || w.keepsOff(other, pod) ||
			slices.ContainsFunc(resources.HostPorts(other), func(p resources.HostPort) bool { return slices.Contains(ports, p) }))
	})
}

// keepsOff reports whether the required anti-affinity of a pod selects another one.
func (w *snapshotBuilder) keepsOff(pod, other *corev1.Pod) bool {
	terms := topology.RequiredAntiAffinity(pod)
	for i := range terms {
		term := newApartTerm(pod.Namespace, &terms[i])
		if term.selects(other, w.snap.Namespaces[other.Namespace]) {
			return true
		}
	}
	return false
}
