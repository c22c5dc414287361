package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// minDuration gives a scheduler that has not seen the taint yet the time to bind its last pod.
const minDuration = 5 * time.Second

// justAfter is the difference between a rule that holds at a time and one that holds after it.
const justAfter = time.Nanosecond

// Node is all that the drain of a node depends on. The caller has tainted the node.
type Node struct {
	// Pods are bound to the node.
	Pods []*corev1.Pod
	// Deadline bounds the drain, whatever protects the pods; nil if nothing does.
	Deadline *time.Time
	// Since is when the drain began. It is nil for a node of which that is not recorded, and once all pods were seen to be gone.
	Since *time.Time
	// Interrupted is true if EC2 reclaims the instance within minutes.
	Interrupted bool
	// Broken is true for a node that is replaced since it does not work: its pods serve nobody.
	Broken bool
	// Order has pods leave one after the other.
	Order Order
	// Volumes are those that have to be detached before the instance terminates; see HoldsInstance.
	Volumes Volumes
	// Reboot is true for a node that comes back with its volumes: no daemon waits until they are detached.
	Reboot bool
	// Budgets are for Wait.Why alone, and may be left out: the eviction API checks PodDisruptionBudgets.
	Budgets []snapshot.Budget
}

// Volumes is the state of a node's volumes.
type Volumes string

// The states of Volumes.
const (
	// VolumesUnread is the state as long as nobody has looked. Nobody has to before the phase Detaching.
	VolumesUnread   Volumes = ""
	VolumesAttached Volumes = "attached"
	VolumesDetached Volumes = "detached"
)

// Of is the drain of the node of a claim, as far as the claim records it; claim is nil for a node without one. A drain that the claim
// does not record begins now. A deadline that cannot be parsed is none.
func Of(claim *karpv1.NodeClaim, pods []*corev1.Pod, now time.Time) Node {
	out := Node{Pods: pods}
	if claim == nil {
		return out
	}
	out.Deadline, _ = claim.TerminationDeadline()
	switch c, recorded := condition.Get(claim, karpv1.ConditionDrained); {
	case !recorded:
		out.Since = &now
	case c.Status != metav1.ConditionTrue:
		out.Since = &c.LastTransitionTime.Time
	}
	why, _ := condition.Get(claim, karpv1.ConditionDisruptionReason)
	out.Interrupted = why.Status == metav1.ConditionTrue &&
		(why.Reason == karpv1.ReasonSpotInterrupted || why.Reason == karpv1.ReasonReservationInterrupted)
	out.Broken = why.Status == metav1.ConditionTrue && why.Reason == string(karpv1.DisruptionUnhealthy)
	return out
}

// Phase is how far a drain is. A node goes through them in this order, and back if a pod comes to it.
type Phase string

// The phases.
const (
	// Evicting: pods leave that the node can do without.
	Evicting Phase = "Evicting"
	// Settling: no pod is left, and a scheduler may still bind one.
	Settling Phase = "Settling"
	// Detaching: the volumes of the pods that have left are still attached, or nobody has looked.
	Detaching Phase = "Detaching"
	// EvictingDaemons: the daemons leave that pods and volumes needed.
	EvictingDaemons Phase = "EvictingDaemons"
	// Done: the instance may go.
	Done Phase = "Done"
)

// Step is what a drain does next. Equal facts give equal steps, so that any process can go on.
type Step struct {
	Phase Phase
	// Delete are at their deadline: they are deleted, whatever protects them. Evict leave by the eviction API, in this order.
	Delete, Evict []*corev1.Pod
	// Waits are the pods that the phase waits for, in the order of the node's. Past the deadline none waits for daemons; Done then lists
	// those that are left.
	Waits []Wait
	// Until is when time alone changes the step; zero if only pods, volumes or the node can, and once the drain is over.
	Until time.Time
}

// Next decides what a drain does now.
func Next(n Node, now time.Time) Step {
	pods, daemons := splitDaemons(n.Pods)
	if n.Reboot {
		pods, daemons = n.Pods, nil
	}
	step := n.leave(pods, now)
	if step.Phase = Evicting; len(step.Waits) > 0 {
		return step
	}
	if n.Since != nil && now.Sub(*n.Since) < minDuration {
		return Step{Phase: Settling, Until: n.Since.Add(minDuration)}
	}
	var passes time.Time
	if n.Deadline != nil {
		passes = n.Deadline.Add(justAfter)
	}
	overdue := n.Deadline != nil && !now.Before(passes)
	if !n.Reboot && (n.Volumes == VolumesUnread || n.Volumes == VolumesAttached && !overdue) {
		step = Step{Phase: Detaching}
		if n.Volumes == VolumesAttached {
			step.Until = passes
		}
		return step
	}
	step = n.leave(daemons, now)
	if step.Phase = EvictingDaemons; len(step.Waits) == 0 || overdue {
		step.Phase, step.Until = Done, time.Time{}
		return step
	}
	step.Until = earliest(step.Until, passes)
	return step
}

// leave decides how pods leave. They do in four tiers, and each tier waits for the one before: applications, daemons, critical
// applications, critical daemons. Pods at their deadline are in no tier. Within a tier, pods leave as Order states.
func (n *Node) leave(pods []*corev1.Pod, now time.Time) (out Step) {
	var waiting []*corev1.Pod
	var tiers [4][]*corev1.Pod
	for _, p := range pods {
		if !drainable(p, now) || snapshot.Terminal(p) {
			continue
		}
		waiting = append(waiting, p)
		if Overdue(p, n.Deadline, now) {
			out.Delete = append(out.Delete, p)
			continue
		}
		tiers[tier(p)] = append(tiers[tier(p)], p)
	}
	first := slices.IndexFunc(tiers[:], func(tier []*corev1.Pod) bool { return len(tier) > 0 })
	// A volume that is still attached when a reclaimed instance goes keeps the pod's successor waiting for minutes: pods with volumes
	// leave first and at once, in any tier.
	atOnce := func(p *corev1.Pod) bool { return n.Interrupted && hasVolume(p) }
	out.Waits = make([]Wait, 0, len(waiting))
	for _, p := range waiting {
		w, stays := n.wait(p, tier(p) == first || atOnce(p), now)
		out.Waits, out.Until = append(out.Waits, w), earliest(out.Until, w.Until)
		if atOnce(p) && w.Why != AtDeadline {
			out.Evict = append(out.Evict, p)
		}
		if stays {
			tiers[first] = slices.DeleteFunc(tiers[first], func(o *corev1.Pod) bool { return o == p })
		}
	}
	if first >= 0 {
		out.Evict = append(out.Evict, slices.DeleteFunc(volumesFirst(tiers[first]), atOnce)...)
	}
	return out
}

// earliest is the earlier of two times, of which zero is none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
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
