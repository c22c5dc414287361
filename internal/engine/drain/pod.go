package drain

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Wait is a pod that a drain waits for.
type Wait struct {
	Pod *corev1.Pod
	Why Why
	// Until is when time alone changes Why, or is all that was waited for; zero if it does neither.
	Until time.Time
}

// Why is the reason why a pod is still on its node.
type Why string

// The reasons.
const (
	// AtDeadline: the pod is deleted now, so that its grace period is over by the deadline.
	AtDeadline Why = "AtDeadline"
	// Terminating: the pod is being deleted.
	Terminating Why = "Terminating"
	// Later: other pods leave first.
	Later Why = "Later"
	// Protected: the pod has the annotation karpenter.sh/do-not-disrupt.
	Protected Why = "Protected"
	// SiblingsNotReady: other pods of the same owner are not Ready, or leave first.
	SiblingsNotReady Why = "SiblingsNotReady"
	// Finishing: the pod completes by itself soon.
	Finishing Why = "Finishing"
	// BudgetBlocks: a PodDisruptionBudget allows no eviction of the pod, or more than one selects it.
	BudgetBlocks Why = "BudgetBlocks"
	// Evictable: nothing that is known keeps the pod from being evicted now.
	Evictable Why = "Evictable"
)

// wait is the wait for a pod that the node waits for. next is true for a pod of the current tier; it stays if it is held back.
func (n *Node) wait(p *corev1.Pod, next bool, now time.Time) (w Wait, stays bool) {
	w = Wait{Pod: p, Until: forcedAt(p, n.Deadline)}
	if p.DeletionTimestamp != nil {
		if w.Why, w.Until = Terminating, p.DeletionTimestamp.Add(stuckPodTimeout+justAfter); Overdue(p, n.Deadline, now) {
			w.Why = AtDeadline
		}
		return w, false
	}
	switch {
	case Overdue(p, n.Deadline, now):
		w.Why, w.Until = AtDeadline, time.Time{}
		return w, false
	case !next:
		w.Why = Later
		return w, false
	}
	held := n.held(p, now)
	w.Until = earliest(w.Until, held.until)
	switch protection, ends := snapshot.DoNotDisrupt(p, now); {
	case protection.Blocks():
		w.Why, w.Until = Protected, earliest(w.Until, ends)
	case held.why != "":
		w.Why = held.why
	case n.budgetBlocks(p):
		w.Why = BudgetBlocks
	default:
		w.Why = Evictable
	}
	return w, held.why != ""
}

// budgetBlocks reports whether the eviction API refuses to evict a pod, as far as budgets are known.
func (n *Node) budgetBlocks(p *corev1.Pod) bool {
	selecting := slices.DeleteFunc(slices.Clone(n.Budgets), func(b snapshot.Budget) bool { return !b.Selects(p) })
	return len(selecting) > 1 || len(selecting) == 1 && selecting[0].Blocks(p)
}

// Action is what is done about a pod that has to leave its node.
type Action string

// The actions.
const (
	// Nothing is left to do: the pod is gone, or leaves as fast as it can, or may stay.
	Nothing Action = "Nothing"
	// Keep: the pod may not be evicted yet.
	Keep Action = "Keep"
	// Evict by the eviction API, which refuses while PodDisruptionBudgets do not allow it.
	Evict Action = "Evict"
	// Delete with a grace period, whatever protects the pod.
	Delete Action = "Delete"
)

// Request is a pod that has to leave its node.
type Request struct {
	Pod *corev1.Pod
	// Deadline is that of the node's drain, nil if nothing bounds it. From Until on, the pod may stay; nil if it must leave.
	Deadline, Until *time.Time
}

// Next decides what is done about the pod now, and with which grace period it is deleted, in seconds. A pod that is deleted gets the
// time that is left until the deadline, and at least one second, since zero would let a successor start while the pod still runs.
func (r Request) Next(now time.Time) (a Action, grace int64) {
	switch {
	case r.Until != nil && !now.Before(*r.Until):
		return Nothing, 0
	case Overdue(r.Pod, r.Deadline, now):
		grace = max(int64(r.Deadline.Sub(now)/time.Second), 1)
		if had := r.Pod.DeletionGracePeriodSeconds; r.Pod.DeletionTimestamp != nil && had != nil && *had <= grace {
			return Nothing, 0 // its grace period is no longer than that already; its kubelet is slow to report the end, or gone
		}
		return Delete, grace
	case !snapshot.Active(r.Pod):
		return Nothing, 0
	case !snapshot.Evictable(r.Pod, now):
		return Keep, 0
	}
	return Evict, 0
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

// HoldsInstance reports whether the instance stays until the volumes of a pod on it are detached. It does not for pods that stay to the
// end, and for daemons that leave after the volumes of the others.
func HoldsInstance(pod *corev1.Pod, now time.Time) bool {
	return !servesNode(pod) && drainable(pod, now)
}

// longestGrace is the longest grace period in seconds that fits a time.Duration; the API server admits longer ones.
const longestGrace = int64(math.MaxInt64 / time.Second)

// forcedAt is when a pod that is not terminating must be deleted so that its own grace period is over by the deadline; zero if there is no
// deadline, or no grace period.
func forcedAt(pod *corev1.Pod, deadline *time.Time) time.Time {
	grace := pod.Spec.TerminationGracePeriodSeconds
	if deadline == nil || grace == nil {
		return time.Time{}
	}
	return deadline.Add(-time.Duration(min(*grace, longestGrace)) * time.Second)
}

// Overdue reports whether a pod must be deleted now so that its own grace period is over by the deadline. If its grace
// period is as long as the node's, that is at the start of the drain. A pod that is already terminating is overdue when
// its grace period would last beyond the deadline.
func Overdue(pod *corev1.Pod, deadline *time.Time, now time.Time) bool {
	if deadline == nil {
		return false
	}
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.After(*deadline)
	}
	return pod.Spec.TerminationGracePeriodSeconds != nil && !now.Before(forcedAt(pod, deadline))
}
