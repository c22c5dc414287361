package termination

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// drain is what a node's pods ask for next.
type drain struct {
	// Evict are the pods whose turn it is; Force those whose time has run out, whatever their turn.
	Evict, Force []*corev1.Pod
	// Left is how many pods are still in the way.
	Left int
}

// nextDrain decides which pods leave now. Pods leave in four tiers, and a tier waits until the one before
// it is gone: first what does not matter to the node itself, last what keeps it alive. A deadline is nil
// when the drain may take as long as it takes.
func nextDrain(pods []*corev1.Pod, deadline *time.Time, now time.Time) drain {
	var out drain
	var tiers [4][]*corev1.Pod
	for _, pod := range pods {
		if !drainable(pod, now) || snapshot.Terminal(pod) {
			continue
		}
		out.Left++
		if overdue(pod, deadline, now) {
			out.Force = append(out.Force, pod)
			continue
		}
		t := tier(pod)
		tiers[t] = append(tiers[t], pod)
	}
	for _, pods := range tiers {
		if len(pods) > 0 {
			out.Evict = stateful(pods)
			break
		}
	}
	return out
}

// stateful puts the pods with volumes first: unmounting and detaching then go on while the others end.
func stateful(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return rank(a) - rank(b) })
	return pods
}

func rank(pod *corev1.Pod) int {
	if hasVolume(pod) {
		return 0
	}
	return 1
}

// tier is the rank of a pod's leave.
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

// stuck is how long after its grace period a pod still counts as on its way out. Its kubelet will not
// report any more.
const stuck = time.Minute

// drainable reports whether the pod has to leave before its node may. Static pods cannot, pods that tolerate
// the taint of ending nodes want to stay to the end.
func drainable(pod *corev1.Pod, now time.Time) bool {
	if snapshot.ToleratesDisruption(pod) || snapshot.Mirror(pod) {
		return false
	}
	return pod.DeletionTimestamp == nil || now.Sub(pod.DeletionTimestamp.Time) <= stuck
}

// longestGrace is the longest grace period in seconds that can be reckoned with; the API server admits longer ones.
const longestGrace = int64(math.MaxInt64 / time.Second)

// overdue reports whether a pod must be deleted now so that its own grace period ends by the deadline: one whose grace period
// is as long as the node's must be as soon as the drain begins. A pod
// that is already terminating is overdue when it would take longer than that.
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

// grantedSeconds is the grace period of a forced deletion: what is left until the deadline, at least one
// second, since zero would let a successor start while the pod still runs.
func grantedSeconds(deadline, now time.Time) int64 {
	return max(int64(deadline.Sub(now)/time.Second), 1)
}
