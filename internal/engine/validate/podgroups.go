package validate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// podGroups: kube-scheduler binds pods of a PodGroup only if it tries the group, and only so many at once that the group's minCount have
// nodes.
func (c *check) podGroups() {
	for i := range c.s.PodGroups {
		g := &c.s.PodGroups[i]
		placed, at := c.placedMembers(g)
		if len(placed) == 0 {
			continue
		}
		if why := c.untried(g); why != "" {
			c.failAt(at, "pod %s is placed, but kube-scheduler does not try its PodGroup: %s", name(placed[0]), why)
			continue
		}
		if short := c.membersShort(g, len(placed)); short > 0 {
			c.failAt(at, "PodGroup %s/%s: %d pods are placed, and kube-scheduler binds none before %d more fit", g.Namespace, g.Name,
				len(placed), short)
		}
	}
}

// placedMembers are the pods of the group that the plan puts on nodes, and these nodes.
func (c *check) placedMembers(g *snapshot.PodGroup) (out []*corev1.Pod, at []*host) {
	for _, h := range c.hosts {
		for _, pod := range h.pods {
			if inGroup(pod, g) {
				out, at = append(out, pod), append(at, h)
			}
		}
	}
	return out, at
}

func inGroup(pod *corev1.Pod, g *snapshot.PodGroup) bool {
	ref := pod.Spec.SchedulingGroup
	return ref != nil && ref.PodGroupName != nil && *ref.PodGroupName == g.Name && pod.Namespace == g.Namespace
}

// untried returns why kube-scheduler holds the pods of the group before it tries any.
func (c *check) untried(g *snapshot.PodGroup) string {
	if g.Object == nil {
		return "it does not exist"
	}
	if gang := g.Object.Spec.SchedulingPolicy.Gang; gang != nil && len(g.Members) < int(gang.MinCount) {
		return fmt.Sprintf("of %d pods %d exist", gang.MinCount, len(g.Members))
	}
	schedulers, policies := map[string]bool{}, map[corev1.PreemptionPolicy]bool{}
	for _, pod := range g.Members {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !ended(pod) && len(pod.Spec.SchedulingGates) > 0 {
			return fmt.Sprintf("pod %s has gates", name(pod))
		}
		if ended(pod) {
			continue
		}
		if priority(pod.Spec.Priority) != priority(g.Object.Spec.Priority) {
			return fmt.Sprintf("pod %s has another priority", name(pod))
		}
		if scheduler := pod.Spec.SchedulerName; scheduler == "" {
			schedulers[corev1.DefaultSchedulerName] = true
		} else {
			schedulers[scheduler] = true
		}
		if p := pod.Spec.PreemptionPolicy; p == nil {
			policies[corev1.PreemptLowerPriority] = true
		} else {
			policies[*p] = true
		}
	}
	if len(schedulers) > 1 || len(policies) > 1 {
		return "its pods have different schedulers or preemption policies"
	}
	return ""
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func priority(p *int32) int32 {
	if p == nil {
		return 0
	}
	return *p
}

// membersShort returns how many pods of the group are missing at its minCount, if so many get nodes besides those that have one and keep
// it.
func (c *check) membersShort(g *snapshot.PodGroup, placed int) int {
	gang := g.Object.Spec.SchedulingPolicy.Gang
	if gang == nil {
		return 0
	}
	keeping := map[types.UID]bool{}
	for _, pod := range g.Members {
		if pod.Spec.NodeName != "" && !ended(pod) && !c.planned[pod.UID] {
			keeping[pod.UID] = true
		}
	}
	for i := range c.s.Nodes { // pods that are nominated to a node are about to be bound there, unless others leave first
		n := &c.s.Nodes[i]
		if slices.ContainsFunc(n.Pods, makesRoom) {
			continue
		}
		for _, pod := range n.Pods {
			if inGroup(pod, g) && !ended(pod) && !c.planned[pod.UID] {
				keeping[pod.UID] = true
			}
		}
	}
	return max(0, int(gang.MinCount)-len(keeping)-placed)
}

// makesRoom reports whether kube-scheduler evicts the pod for another.
func makesRoom(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// waitsForGroup reports whether the pod has no node since its PodGroup has none, or too few, in the plan.
func (c *check) waitsForGroup(pod *corev1.Pod) bool {
	for i := range c.s.PodGroups {
		if g := &c.s.PodGroups[i]; inGroup(pod, g) {
			placed, _ := c.placedMembers(g)
			return c.untried(g) != "" || c.membersShort(g, len(placed)) > 0
		}
	}
	return false
}

// groupDomains: all pods of a group with a topology that have nodes are in one domain, whatever their nodes become.
func (c *check) groupDomains() {
	for i := range c.s.PodGroups {
		g := &c.s.PodGroups[i]
		if g.Object == nil || g.Object.Spec.SchedulingConstraints == nil {
			continue
		}
		placed, at := c.placedMembers(g)
		if len(placed) == 0 {
			continue
		}
		for j := range c.s.Nodes {
			if n := c.hosts[j]; slices.ContainsFunc(n.node.Pods, func(p *corev1.Pod) bool {
				return inGroup(p, g) && !ended(p) && !c.planned[p.UID]
			}) {
				at = append(at, n)
			}
		}
		for _, constraint := range g.Object.Spec.SchedulingConstraints.Topology {
			first, known := at[0].label(constraint.Key).single()
			for _, h := range at {
				if value, one := h.label(constraint.Key).single(); !known || !one || value != first {
					c.failAt(at, "PodGroup %s/%s must be in one domain of %s, and its pods on %s may be in another than those on %s", g.Namespace,
						g.Name, constraint.Key, h.name, at[0].name)
					break
				}
			}
		}
	}
}
