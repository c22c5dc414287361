package snapshot

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// held is the first reason why kube-scheduler does not try the group, or fails with any node; nil if there is none.
func (r *groupReader) held(p *PodGroup, g *Group) *rejection.Reason {
	for _, check := range []func(*PodGroup, *Group) string{
		missing, composite, r.constrained, gated, r.lacksClaims, incomplete, contradictory, r.failed, r.preempting,
	} {
		if why := check(p, g); why != "" {
			return &rejection.Reason{Code: rejection.PodGroup, Rule: &rejection.Rule{
				PodGroup: &rejection.GroupOfPods{Name: p.Name, Cause: rejection.GroupHeld, Held: why},
			}}
		}
	}
	return nil
}

func missing(p *PodGroup, _ *Group) string {
	if p.Object != nil {
		return ""
	}
	return "does not exist, and kube-scheduler holds the pods that name it until it does"
}

func composite(p *PodGroup, _ *Group) string {
	parent := p.Object.Spec.ParentCompositePodGroupName
	if parent == nil || *parent == "" {
		return ""
	}
	return fmt.Sprintf("is part of CompositePodGroup %q: no nodes are planned for groups of groups", *parent)
}

// constrained: kube-scheduler fails for a group with a topology that has pods in two domains, or in none. It counts spreads over the
// nodes of all domains, which plans for one domain do not.
func (r *groupReader) constrained(p *PodGroup, g *Group) string {
	if g.TopologyKey == "" {
		return ""
	}
	for _, pod := range p.Members {
		if g.scheduled[pod.UID] == nil {
			for i := range pod.Spec.TopologySpreadConstraints {
				if waits(pod) && pod.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable == corev1.DoNotSchedule {
					return fmt.Sprintf("must be in one domain of %s (schedulingConstraints.topology), and its pod %q has a spread constraint with "+
						"DoNotSchedule: no nodes are planned for both together", g.TopologyKey, pod.Name)
				}
			}
			continue
		}
		n := r.nodes[cmp.Or(pod.Spec.NodeName, pod.Status.NominatedNodeName)]
		if n == nil {
			return fmt.Sprintf("must be in one domain of %s (schedulingConstraints.topology), and the node of its pod %q is not known",
				g.TopologyKey, pod.Name)
		}
		value, has := n.Labels[g.TopologyKey]
		if !has || g.Domain != "" && value != g.Domain {
			return fmt.Sprintf("must be in one domain of %s (schedulingConstraints.topology), and has pods in two, or on a node without that "+
				"label, such as pod %q: kube-scheduler fails for the group", g.TopologyKey, pod.Name)
		}
		g.Domain = value
	}
	return ""
}

// gated: one pod with gates holds the whole group.
func gated(p *PodGroup, _ *Group) string {
	for _, pod := range p.Members {
		if waits(pod) && len(pod.Spec.SchedulingGates) > 0 {
			return fmt.Sprintf("waits for its pod %q, which has scheduling gates: kube-scheduler tries the pods of a group together", pod.Name)
		}
	}
	return ""
}

// lacksClaims: one pod without its resource claims holds the whole group.
func (r *groupReader) lacksClaims(p *PodGroup, _ *Group) string {
	if r.s.Devices == nil {
		return ""
	}
	for _, pod := range p.Members {
		if !waits(pod) || !WantsDevices(&pod.Spec) {
			continue
		}
		if _, err := r.s.Devices.Claims(pod); err != nil {
			return fmt.Sprintf("waits for its pod %q: %v", pod.Name, err)
		}
	}
	return ""
}

func incomplete(p *PodGroup, g *Group) string {
	if !g.Gang || g.Members >= g.MinCount {
		return ""
	}
	return fmt.Sprintf("needs %d pods at the same time (gang.minCount), and %d exist: kube-scheduler holds them until there are enough",
		g.MinCount, g.Members)
}

// contradictory: kube-scheduler fails for a group of pods that differ in what the whole group has once.
func contradictory(p *PodGroup, g *Group) string {
	const fails = "; kube-scheduler fails for the whole group until they are the same"
	var first *corev1.Pod
	for _, pod := range p.Members {
		if Terminal(pod) {
			continue
		}
		if priority := priorityOf(pod); priority != g.priority {
			return fmt.Sprintf("has priority %d, and its pod %q has %d%s", g.priority, pod.Name, priority, fails)
		}
		if first == nil {
			first = pod
			continue
		}
		if a, b := schedulerOf(first), schedulerOf(pod); a != b {
			return fmt.Sprintf("has pods of two schedulers: %q names %s and %q names %s%s", first.Name, a, pod.Name, b, fails)
		}
		if a, b := preemptionOf(first), preemptionOf(pod); a != b {
			return fmt.Sprintf("has pods of two preemption policies: %q has %s and %q has %s%s", first.Name, a, pod.Name, b, fails)
		}
	}
	return ""
}

// failed: kube-scheduler fails for the group, and goes on to. While the cluster has no Node, it does so for each group, since it has tried
// none of the pods: DynamicResources then misses what it keeps of them.
func (r *groupReader) failed(p *PodGroup, _ *Group) string {
	c := scheduledCondition(p.Object)
	if len(r.nodes) == 0 || c == nil || c.Status == metav1.ConditionTrue || c.Reason != schedulingv1beta1.PodGroupReasonSchedulerError {
		return ""
	}
	return fmt.Sprintf("fails in kube-scheduler, and no node changes that: %s",
		cmp.Or(c.Message, "the reason of its condition PodGroupInitiallyScheduled is SchedulerError"))
}

// preempting: the group waits where pods of lower priority leave.
func (r *groupReader) preempting(p *PodGroup, _ *Group) string {
	for _, pod := range p.Members {
		if !waits(pod) {
			continue
		}
		if n := r.nodes[pod.Status.NominatedNodeName]; n != nil && preempts(n) {
			return fmt.Sprintf("waits for pods of lower priority to leave node %s, from which kube-scheduler evicts them for the group", n.Name)
		}
	}
	return ""
}

// waits reports whether the pod has no node yet and will need one.
func waits(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" && Active(pod) }

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func schedulerOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
}

func preemptionOf(pod *corev1.Pod) corev1.PreemptionPolicy {
	if pod.Spec.PreemptionPolicy == nil {
		return corev1.PreemptLowerPriority
	}
	return *pod.Spec.PreemptionPolicy
}
