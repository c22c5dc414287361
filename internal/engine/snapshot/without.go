package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Exclusion states what is left out of a snapshot.
type Exclusion struct {
	Pod       func(*corev1.Pod) bool
	DaemonSet func(*DaemonSet) bool
	// Message states why a node with such a pod is Unplannable.
	Message string
}

// Without returns the snapshot without some pods and DaemonSets. A node with such a pod takes no other pods and is not
// disrupted, since its free capacity is unknown.
func (s *Snapshot) Without(x Exclusion) *Snapshot {
	c := *s
	c.Pods, c.Virtual, c.Arriving = filter(s.Pods, x.Pod), filter(s.Virtual, x.Pod), filter(s.Arriving, x.Pod)
	c.DaemonSets = filter(s.DaemonSets, func(d DaemonSet) bool { return x.DaemonSet(&d) })
	for i := range s.Nodes {
		pods := filter(s.Nodes[i].Pods, x.Pod)
		if len(pods) == len(s.Nodes[i].Pods) {
			continue
		}
		if &c.Nodes[0] == &s.Nodes[0] {
			c.Nodes = slices.Clone(s.Nodes)
		}
		n := &c.Nodes[i]
		n.Pods, n.Unplannable = pods, x.Message
		n.Allocatable = n.Allocatable.DeepCopy()
		for name, q := range n.Allocatable {
			q.Set(0)
			n.Allocatable[name] = q
		}
	}
	return &c
}

// filter returns the list itself if nothing in it is excluded.
func filter[T any](list []T, excluded func(T) bool) []T {
	if !slices.ContainsFunc(list, excluded) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), excluded)
}
