package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FitsAlone reports whether the node has room for the pod beside the pods that come with the node.
func (s *Settings) FitsAlone(n *Node, pod *corev1.Pod) bool {
	_, _, short := s.ShortAlone(n, pod)
	return !short
}

// ShortAlone returns the first resource, by name, of which the node has too little for the pod beside the pods that come with the node,
// and how much it has.
func (s *Settings) ShortAlone(n *Node, pod *corev1.Pod) (name corev1.ResourceName, free resource.Quantity, short bool) {
	return shortBeside(n, s.Compared(&pod.Spec, Requests(pod)), func(other *corev1.Pod) bool { return DaemonOwned(other) || Mirror(other) })
}

// Fits reports whether the node has room for the pod beside all pods that exist.
func (s *Settings) Fits(n *Node, pod *corev1.Pod) bool {
	_, _, short := shortBeside(n, s.Compared(&pod.Spec, Requests(pod)), func(*corev1.Pod) bool { return true })
	return !short
}

func shortBeside(n *Node, requests corev1.ResourceList, counts func(*corev1.Pod) bool) (corev1.ResourceName, resource.Quantity, bool) {
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
