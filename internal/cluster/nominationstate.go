package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// judgeNominations finds the pending pods that lost their place on an initialized node to others, and the nodes that are too young to
// report whether they suit the pods that they were launched for. Pods stay nominated to such a node, unless their place is taken, or the
// node is too small for them and always will be.
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
			case !snapshot.FitsAlone(n, pod):
				n.TooSmallFor = append(n.TooSmallFor, pod.UID)
			case w.placeTaken(n, pod):
				n.TakenFrom = append(n.TakenFrom, pod.UID)
			}
		}
		n.Settling = len(n.Nominated) > 0 && !w.facts.Now.After(n.SettledAt)
	}
}

// placeTaken reports whether the pods that have come to a node keep off a pod that it was launched for, and that fits
// there alone. Pods that come with the node were planned, and take no place.
func (w *snapshotBuilder) placeTaken(n *snapshot.Node, pod *corev1.Pod) bool {
	ordinary := func(other *corev1.Pod) bool { return !snapshot.DaemonOwned(other) && !snapshot.Mirror(other) }
	if !slices.ContainsFunc(n.Pods, ordinary) {
		return false
	}
	if !snapshot.Fits(n, pod) {
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
