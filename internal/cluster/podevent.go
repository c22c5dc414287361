package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// LastPodEvent returns when a pod of a node last came, began to terminate, or finished; zero if none did. Pods of DaemonSets do
// not count. The times are those of the pods, not of the clock.
func LastPodEvent(pods []*corev1.Pod) (last time.Time) {
	for _, pod := range pods {
		if !snapshot.DaemonOwned(pod) {
			last = latest(last, lastEvent(pod))
		}
	}
	return last
}

// lastEvent returns when the pod was last bound, began to terminate, or finished.
func lastEvent(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			at = latest(at, c.LastTransitionTime.Time)
		}
	}
	if pod.DeletionTimestamp != nil {
		var grace int64
		if s := pod.DeletionGracePeriodSeconds; s != nil {
			grace = *s
		}
		at = latest(at, pod.DeletionTimestamp.Add(-time.Duration(grace)*time.Second))
	}
	if snapshot.Terminal(pod) {
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Terminated != nil {
				at = latest(at, c.State.Terminated.FinishedAt.Time)
			}
		}
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
