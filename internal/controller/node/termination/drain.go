package termination

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// drain is the next step of a node's drain.
type drain struct {
	// Evict are the pods of the current tier; Force holds those at their deadline, in any tier.
	Evict, Force []*corev1.Pod
	// Waiting counts how many pods the node still waits for.
	Waiting int
}

// nextDrain decides which pods leave now. Pods leave in four tiers, and each tier waits for the one before:
// applications, daemons, critical applications, critical daemons. A nil deadline means no limit on the drain.
func nextDrain(pods []*corev1.Pod, deadline *time.Time, now time.Time) drain {
	var out drain
	var tiers [4][]*corev1.Pod
	for _, pod := range pods {
		if !drainable(pod, now) || snapshot.Terminal(pod) {
			continue
		}
		out.Waiting++
		if overdue(pod, deadline, now) {
			out.Force = append(out.Force, pod)
			continue
		}
		t := tier(pod)
		tiers[t] = append(tiers[t], pod)
	}
	for _, pods := range tiers {
		if len(pods) > 0 {
			out.Evict = volumesFirst(pods)
			break
		}
	}
	return out
}

// volumesFirst moves the pods with volumes to the front: unmounting and detaching then overlap with the other pods'
// shutdown.
func volumesFirst(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return rank(a) - rank(b) })
	return pods
}

func rank(pod *corev1.Pod) int {
	if hasVolume(pod) {
		return 0
	}
	return 1
}

// tier is the position of a pod in the order of the drain.
func tier(pod *corev1.Pod) int {
	t := 0
	if snapshot.DaemonOwned(pod) {
		t++
	}
	if pod.Spec.PriorityClassName == "system-cluster-critical" || pod.Spec.PriorityClassName == "system-node-critical" {
		t += 2
	}
	return t
}

// stuckPodTimeout sets how long after its grace period a terminating pod still counts. After that its kubelet will not
// report any more.
const stuckPodTimeout = time.Minute

// drainable reports whether the node waits for the pod. Static pods cannot leave; pods that tolerate the disruption
// taint stay to the end.
func drainable(pod *corev1.Pod, now time.Time) bool {
	if snapshot.ToleratesDisruption(pod) || snapshot.Mirror(pod) {
		return false
	}
	return pod.DeletionTimestamp == nil || now.Sub(pod.DeletionTimestamp.Time) <= stuckPodTimeout
}

// longestGrace is the longest grace period in seconds that fits a time.Duration; the API server admits longer ones.
const longestGrace = int64(math.MaxInt64 / time.Second)

// overdue reports whether a pod must be deleted now so that its own grace period is over by the deadline. If its grace
// period is as long as the node's, that is at the start of the drain. A pod that is already terminating is overdue when
// its grace period would last beyond the deadline.
func overdue(pod *corev1.Pod, deadline *time.Time, now time.Time) bool {
	if deadline == nil {
		return false
	}
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.After(*deadline)
	}
	grace := pod.Spec.TerminationGracePeriodSeconds
	return grace != nil && !now.Before(deadline.Add(-time.Duration(min(*grace, longestGrace))*time.Second))
}

// grantedSeconds is the grace period of a forced deletion: the time left until the deadline, at least one second, since
// zero would let a successor start while the pod still runs.
func grantedSeconds(deadline, now time.Time) int64 {
	return max(int64(deadline.Sub(now)/time.Second), 1)
}
