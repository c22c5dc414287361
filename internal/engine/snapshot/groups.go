package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// Groups are the PodGroups of a snapshot. The zero value has none.
type Groups struct {
	byName map[types.NamespacedName]*Group
	all    []*Group
}

// Group is a PodGroup with its pods.
type Group struct {
	Namespace, Name string
	// MinCount counts how many of the pods need nodes at the same time: 1 for a basic group, 0 if the PodGroup does not exist.
	MinCount int
	// Gang is true if the group has a minCount of its own.
	Gang bool
	// Members counts how many pods name the group, in any phase.
	Members int
	// TopologyKey is the node label that must have one value for all pods of the group; empty if there is none.
	TopologyKey string
	// Domain is the value of that label on the nodes of the group's pods; empty while none has a node.
	Domain string
	// Together is true if kube-scheduler evicts the pods of the group together or not at all.
	Together bool
	// Running is true once kube-scheduler has reported that it has scheduled the group.
	Running bool
	// Tried is true if kube-scheduler has tried the group: pods of it that it has not mentioned wait with the others.
	Tried bool
	// Held states why no plan includes the pods; nil if plans do.
	Held *rejection.Reason

	scheduled map[types.UID]*corev1.Pod
	priority  int32
	oldest    time.Time
}

// ReadGroups reads the PodGroups of a snapshot.
func ReadGroups(s *Snapshot) Groups {
	if len(s.PodGroups) == 0 {
		return Groups{}
	}
	r := groupReader{s: s, nodes: map[string]*Node{}}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Named() {
			r.nodes[n.Name] = n
		}
	}
	out := Groups{byName: make(map[types.NamespacedName]*Group, len(s.PodGroups))}
	for i := range s.PodGroups {
		g := r.group(&s.PodGroups[i])
		out.byName[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = g
		out.all = append(out.all, g)
	}
	slices.SortFunc(out.all, (*Group).compare)
	return out
}

// All are the groups in the order in which kube-scheduler takes them: by priority, then by age. They must not be changed.
func (g Groups) All() []*Group { return g.all }

// Of is the group of the pod; nil if it is in none.
func (g Groups) Of(pod *corev1.Pod) *Group {
	if g.byName == nil {
		return nil
	}
	name, in := PodGroupOf(pod)
	if !in {
		return nil
	}
	return g.byName[name]
}

// Has reports whether the pod is a member that has a node, or is about to be bound to one.
func (g *Group) Has(pod *corev1.Pod) bool { return g.scheduled[pod.UID] != nil }

// Scheduled returns how many members have a node, or are about to be bound to one.
func (g *Group) Scheduled() int { return len(g.scheduled) }

// Need returns how many more members must get nodes at once, if so many of those that have one lose it.
func (g *Group) Need(losing int) int { return max(0, g.MinCount-(len(g.scheduled)-losing)) }

// Nodes are the names of the nodes that the group's pods are on, sorted.
func (g *Group) Nodes() []string {
	var out []string
	for _, pod := range g.scheduled {
		if pod.Spec.NodeName != "" {
			out = append(out, pod.Spec.NodeName)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Tied is the first of the pods with a group that kube-scheduler evicts as a whole and that has pods on other nodes, too; nil if there is
// none. Then neither the node of the pod nor one of the others can go alone.
func (g Groups) Tied(pods []*corev1.Pod) (*corev1.Pod, *Group) {
	if g.byName == nil {
		return nil, nil
	}
	for _, pod := range pods {
		if of := g.Of(pod); of != nil && of.Together && Reschedulable(pod) && len(of.Nodes()) > 1 {
			return pod, of
		}
	}
	return nil, nil
}

// EvictionCost returns what it costs to move pods off their node, in plain pods. A pod of a gang costs as much as all pods of the gang:
// they wait until it is back.
func (g Groups) EvictionCost(pods []*corev1.Pod) (cost float64) {
	var counted []*Group
	for _, pod := range pods {
		if !Reschedulable(pod) {
			continue
		}
		of := g.Of(pod)
		if of == nil || !of.Gang || !of.Has(pod) {
			cost += max(0, EvictionCost(pod))
			continue
		}
		if slices.Contains(counted, of) {
			continue
		}
		counted = append(counted, of)
		for _, uid := range slices.Sorted(maps.Keys(of.scheduled)) { // the order of the sum decides about its last digit
			cost += max(0, EvictionCost(of.scheduled[uid]))
		}
	}
	return cost
}

// compare orders groups as the queue of kube-scheduler does; ties end in the name.
func (g *Group) compare(o *Group) int {
	return cmp.Or(cmp.Compare(o.priority, g.priority), g.oldest.Compare(o.oldest), cmp.Compare(g.Namespace, o.Namespace),
		cmp.Compare(g.Name, o.Name))
}

// groupReader reads the groups of one snapshot.
type groupReader struct {
	s *Snapshot
	// nodes are the Nodes by name.
	nodes map[string]*Node
}

func (r *groupReader) group(p *PodGroup) *Group {
	g := &Group{Namespace: p.Namespace, Name: p.Name, Members: len(p.Members), scheduled: map[types.UID]*corev1.Pod{}}
	for _, pod := range p.Members {
		if r.isScheduled(pod) {
			g.scheduled[pod.UID] = pod
		}
		if at := pod.CreationTimestamp.Time; g.oldest.IsZero() || at.Before(g.oldest) {
			g.oldest = at
		}
		_, refused := UnschedulableSince(pod)
		g.Tried = g.Tried || refused
	}
	if o := p.Object; o != nil {
		g.MinCount = 1
		if gang := o.Spec.SchedulingPolicy.Gang; gang != nil {
			g.Gang, g.MinCount = true, int(gang.MinCount)
		}
		if o.Spec.Priority != nil {
			g.priority = *o.Spec.Priority
		}
		if c := o.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
			g.TopologyKey = c.Topology[0].Key
		}
		g.Together = o.Spec.DisruptionMode != nil && o.Spec.DisruptionMode.All != nil
		if condition := scheduledCondition(o); condition != nil {
			g.Tried, g.Running = true, condition.Status == metav1.ConditionTrue
		}
	}
	g.Held = r.held(p, g)
	return g
}

// isScheduled reports whether the pod has a node, or is about to be bound to the one that it is nominated to.
func (r *groupReader) isScheduled(pod *corev1.Pod) bool {
	if Terminal(pod) {
		return false
	}
	if pod.Spec.NodeName != "" {
		return true
	}
	n := r.nodes[pod.Status.NominatedNodeName]
	return n != nil && !preempts(n) && slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
}

// preempts reports whether kube-scheduler evicts pods from the node for others.
func preempts(n *Node) bool {
	return slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return Terminating(p) && Preempted(p) })
}

// scheduledCondition is the condition by which kube-scheduler reports what became of the group; nil before it has tried.
func scheduledCondition(o *schedulingv1beta1.PodGroup) *metav1.Condition {
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == schedulingv1beta1.PodGroupInitiallyScheduled {
			return c
		}
	}
	return nil
}
