package propertytest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// GroupRules are a scheduler's rules about PodGroups.
type GroupRules interface {
	// Refusal returns why the scheduler does not bind the pods of a group that are on nodes of the cluster, all at once; empty if it does.
	Refusal(c *Cluster, g *snapshot.PodGroup) string
	// Fits is the placement on the first nodes of the cluster in which enough pods of the group fit, with those that have a node; empty if
	// there is none.
	Fits(c *Cluster, nodes int, g *snapshot.PodGroup, waiting []*corev1.Pod) string
}

// SchedulerOfGroups are a scheduler's rules. Groups may be nil, and so may Devices, which is what devices the pods of a snapshot have.
type SchedulerOfGroups struct {
	Filter  Filter
	Groups  GroupRules
	Devices func(*snapshot.Snapshot) Devices
}

// GroupsWorld is a SchedulerWorld with PodGroups: gangs of equal and of different pods, some of them in one zone, with limits that hold
// a part of them.
func GroupsWorld(next func() byte) *snapshot.Snapshot { return random{next}.groupsWorld() }

func (d random) groupsWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	for i := range s.Pools {
		if d.maybe(50) {
			Limit("nodes", fmt.Sprint(d.n(4)))(s.Pools[i].NodePool)
		}
	}
	groups := d.from(1, 3)
	join := func(pod *corev1.Pod) {
		if pod.Namespace == "default" && d.maybe(70) {
			InGroup(fmt.Sprintf("g%d", d.n(groups)))(pod)
		}
	}
	for _, pod := range s.Pods {
		join(pod)
	}
	for i := range s.Nodes {
		for _, pod := range s.Nodes[i].Pods {
			if d.maybe(20) && !snapshot.DaemonOwned(pod) && pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" {
				join(pod)
			}
		}
	}
	var all []*schedulingv1beta1.PodGroup
	for i := range groups {
		name := fmt.Sprintf("g%d", i)
		var edits []func(*schedulingv1beta1.PodGroup)
		if d.maybe(30) && !slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool { return spreadsHardIn(p, name) }) {
			edits = append(edits, GroupKey(Zone))
		}
		all = append(all, Gang(name, int32(d.from(1, 5)), edits...))
	}
	return WithGroups(s, all...)
}

// spreadsHardIn reports whether the pod is in the group and has a spread with DoNotSchedule: groups with a topology and such a pod are not
// planned.
func spreadsHardIn(pod *corev1.Pod, group string) bool {
	name, in := snapshot.PodGroupOf(pod)
	return in && name.Name == group && slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(t corev1.TopologySpreadConstraint) bool {
		return t.WhenUnsatisfiable == corev1.DoNotSchedule
	})
}

// inAnyGroup reports whether the pod names a PodGroup.
func inAnyGroup(pod *corev1.Pod) bool {
	_, in := snapshot.PodGroupOf(pod)
	return in
}

// refusedGroup is a group of which the scheduler does not bind what the plan places; empty if there is none.
func (r *replays) refusedGroup(c *Cluster) string {
	if r.groups == nil {
		return ""
	}
	placed := r.plan.Pods()
	for i := range r.plan.Rejected {
		delete(placed, r.plan.Rejected[i].Pod)
	}
	for i := range r.s.PodGroups {
		g := &r.s.PodGroups[i]
		if !slices.ContainsFunc(g.Members, func(p *corev1.Pod) bool { return placed[p] }) {
			continue
		}
		if why := r.groups.Refusal(c, g); why != "" {
			return fmt.Sprintf("refused: PodGroup %s: %s", g.Name, why)
		}
	}
	return ""
}

// rejectedGroups adds the groups with rejected pods that, together, fit on existing nodes.
func (r *replays) rejectedGroups(c *Cluster, out map[acceptance]bool) {
	if r.groups == nil {
		return
	}
	for i := range r.s.PodGroups {
		g := &r.s.PodGroups[i]
		var waiting []*corev1.Pod
		for k := range r.plan.Rejected {
			if pod := r.plan.Rejected[k].Pod; slices.Contains(g.Members, pod) {
				waiting = append(waiting, pod)
			}
		}
		if len(waiting) == 0 {
			continue
		}
		if where := r.groups.Fits(c, len(r.s.Nodes), g, waiting); where != "" {
			out[acceptance{"PodGroup " + g.Name, where}] = true
		}
	}
}
