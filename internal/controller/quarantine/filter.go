package quarantine

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// UnplannableMessage is the reason on a node with a quarantined pod.
const UnplannableMessage = "planning with a pod on the node fails, see the events of its pods"

// Without returns the snapshot without the pods of out. A node with such a pod takes no other pods and is not
// disrupted, since its free capacity is unknown.
func Without(s *snapshot.Snapshot, out Set, unitIndex *Units) *snapshot.Snapshot {
	if len(out) == 0 {
		return s
	}
	owners := make(map[types.UID]bool, len(out))
	for u := range out {
		owners[u.Owner] = true
	}
	return s.Without(snapshot.Exclusion{
		Pod: func(pod *corev1.Pod) bool { return owners[ownerOf(pod)] && out[unitIndex.Unit(pod)] },
		DaemonSet: func(d *snapshot.DaemonSet) bool {
			return d.Pod != nil && owners[daemonSetOwner(d)] && out[unitIndex.DaemonSetUnit(d)]
		},
		Message: UnplannableMessage,
	})
}

// ExcludedPods returns the pods of s in out, each once, and the DaemonSets.
func ExcludedPods(s *snapshot.Snapshot, out Set, unitIndex *Units) (pods []*corev1.Pod, daemons []*snapshot.DaemonSet) {
	seen := map[types.UID]bool{}
	owners := make(map[types.UID]bool, len(out))
	for u := range out {
		owners[u.Owner] = true
	}
	add := func(list []*corev1.Pod) {
		for _, pod := range list {
			if owners[ownerOf(pod)] && out[unitIndex.Unit(pod)] && !seen[pod.UID] {
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
		if d := &s.DaemonSets[i]; d.Pod != nil && owners[daemonSetOwner(d)] && out[unitIndex.DaemonSetUnit(d)] {
			daemons = append(daemons, d)
		}
	}
	return pods, daemons
}
