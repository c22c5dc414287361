package disrupt

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// ManyPending sets how many pods that wait for nodes put a search for consolidations off, and LongestPostponement for how long. Their
	// nodes are about to come, and change what can be saved; and a search that places so many of them first takes twice the time and
	// memory.
	ManyPending, LongestPostponement = 500, 5 * time.Minute
	// LongestBurst limits how long a whole pass waits while so many pods get nodes: for 30,000 of them, that takes a minute, and two on a
	// computer that is busy with other things. Passes go on in a cluster where it never finishes.
	LongestBurst = 3 * time.Minute
)

// ManyPendingSince is since when at least ManyPending pods have waited for nodes, as far as those that wait now show; false if fewer do.
func ManyPendingSince(s *snapshot.Snapshot) (time.Time, bool) {
	if len(s.Pods) < ManyPending {
		return time.Time{}, false
	}
	pods := slices.SortedFunc(slices.Values(s.Pods), func(a, b *corev1.Pod) int { return waitsSince(a).Compare(waitsSince(b)) })
	return waitsSince(pods[ManyPending-1]), true
}

// waitsSince is since when a pod has waited for a node: a pod of a node that goes does since it goes, which is not known here.
func waitsSince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}
