package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FitsAlone reports whether the node has room for the pod beside the pods that come with the node.
func FitsAlone(n *Node, pod *corev1.Pod) bool {
	_, _, short := ShortAlone(n, pod)
	return !short
}

// ShortAlone returns the first resource, by name, of which the node has too little for the pod beside the pods that come with the node,
// and how much it has.
func ShortAlone(n *Node, pod *corev1.Pod) (name corev1.ResourceName, free resource.Quantity, short bool) {
	return shortBeside(n, pod, func(other *corev1.Pod) bool { return DaemonOwned(other) || Mirror(other) })
}

// Fits reports whether the node has room for the pod beside all pods that exist.
func Fits(n *Node, pod *corev1.Pod) bool {
	_, _, short := shortBeside(n, pod, func(*corev1.Pod) bool { return true })
	return !short
}

func shortBeside(n *Node, pod *corev1.Pod, counts func(*corev1.Pod) bool) (corev1.ResourceName, resource.Quantity, bool) {
	requests := Requests(pod)
	names := make([]corev1.ResourceName, 0, len(requests))
	for name, amount := range requests {
		if !amount.IsZero() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	free := make(corev1.ResourceList, len(names))
	for _, name := range names {
		free[name] = n.Allocatable[name].DeepCopy()
	}
	for _, other := range n.Pods {
		if !counts(other) || Terminal(other) {
			continue
		}
		for name, amount := range Requests(other) {
			if left, needed := free[name]; needed {
				left.Sub(amount)
				free[name] = left
			}
		}
	}
	for _, name := range names {
		if left, amount := free[name], requests[name]; left.Cmp(amount) < 0 {
			return name, left, true
		}
	}
	return "", resource.Quantity{}, false
}
