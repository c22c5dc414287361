package quarantine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Unplannable is what a node says that holds a pod which is left out.
const Unplannable = "planning with a pod on the node fails, see the events of its pods"

// Without is the snapshot without the pods of out. A node that holds one takes no other pods and is not disrupted: what it has
// left is not known.
func Without(s *snapshot.Snapshot, out Set, census *Census) *snapshot.Snapshot {
	if len(out) == 0 {
		return s
	}
	owners := make(map[types.UID]bool, len(out))
	for u := range out {
		owners[u.Owner] = true
	}
	gone := func(pod *corev1.Pod) bool { return owners[ownerOf(pod)] && out[census.Unit(pod)] }
	c := *s
	c.Pods, c.Virtual, c.Arriving = without(s.Pods, gone), without(s.Virtual, gone), without(s.Arriving, gone)
	weightless := func(d snapshot.DaemonSet) bool {
		return d.Pod != nil && owners[daemonsOwner(&d)] && out[census.Daemons(&d)]
	}
	c.DaemonSets = without(s.DaemonSets, weightless)
	for i := range s.Nodes {
		pods := without(s.Nodes[i].Pods, gone)
		if len(pods) == len(s.Nodes[i].Pods) {
			continue
		}
		if &c.Nodes[0] == &s.Nodes[0] {
			c.Nodes = slices.Clone(s.Nodes)
		}
		n := &c.Nodes[i]
		n.Pods, n.Unplannable = pods, Unplannable
		n.Allocatable = n.Allocatable.DeepCopy()
		for name, q := range n.Allocatable {
			q.Set(0)
			n.Allocatable[name] = q
		}
	}
	return &c
}

// without leaves the list as it is where it holds none that is gone.
func without[T any](list []T, gone func(T) bool) []T {
	if !slices.ContainsFunc(list, gone) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), gone)
}

// LeftOut are the pods of s that out leaves out, each once, and the DaemonSets.
func LeftOut(s *snapshot.Snapshot, out Set, census *Census) (pods []*corev1.Pod, daemons []*snapshot.DaemonSet) {
	seen := map[types.UID]bool{}
	owners := make(map[types.UID]bool, len(out))
	for u := range out {
		owners[u.Owner] = true
	}
	add := func(list []*corev1.Pod) {
		for _, pod := range list {
			if owners[ownerOf(pod)] && out[census.Unit(pod)] && !seen[pod.UID] {
				seen[pod.UID] = true
				pods = append(pods, pod)
			}
		}
	}
	add(s.Pods)
	add(s.Arriving)
	add(s.Virtual)
	for i := range s.Nodes {
		add(s.Nodes[i].Pods)
	}
	for i := range s.DaemonSets {
		if d := &s.DaemonSets[i]; d.Pod != nil && owners[daemonsOwner(d)] && out[census.Daemons(d)] {
			daemons = append(daemons, d)
		}
	}
	return pods, daemons
}
