package podreport

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// unprovisionable explains a pod without a node for which no node would be launched, whatever the NodePools allow. It
// reports whether the pod is one.
func (e *explanation) unprovisionable() bool {
	pod := e.pod
	switch {
	case snapshot.Terminal(pod):
		e.conclude(Finished, "has finished (%s): it needs no node.", pod.Status.Phase)
	case snapshot.Terminating(pod):
		e.conclude(Deleting, "is being deleted%s: it gets no node.", prefixed(" for ", e.since(pod.DeletionTimestamp.Time)))
	case len(pod.Spec.SchedulingGates) > 0:
		e.gated()
		return true
	case pod.Status.NominatedNodeName != "" && !e.isPlanned():
		e.conclude(Preempting, "is pending: kube-scheduler evicts pods of lower priority from node %s to make room for it.",
			pod.Status.NominatedNodeName)
		e.Node = e.nodeNamed(pod.Status.NominatedNodeName)
	case snapshot.Mirror(pod):
		e.conclude(Untried, "is pending: it mirrors a static pod of a node, and kubelet alone can start it.")
	case snapshot.DaemonOwned(pod):
		e.daemon()
	case snapshot.Arriving(pod):
		e.untried()
	default:
		return false
	}
	return true
}

// isPlanned reports whether a plan looks for a node for the pod.
func (e *explanation) isPlanned() bool {
	return slices.ContainsFunc(e.view.Snapshot.Pods, func(p *corev1.Pod) bool { return p.UID == e.pod.UID })
}

// gated explains a pod with scheduling gates. The change is planned as if kube-scheduler had then tried the pod.
func (e *explanation) gated() {
	var names []string
	for _, g := range e.pod.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	e.conclude(Gated, "is pending: %s %s in spec.schedulingGates keeps every scheduler from trying it.",
		cmp.Or(map[bool]string{true: "gate"}[len(names) == 1], "one of the gates"), strings.Join(names, ", "))
	closed := closedPools(e.view)
	e.lab = newWhatIf(e.view, e.pod, closed)
	g := &generator{explanation: e, closed: closed, workload: workload{
		Object: Object{"Pod", e.pod.Namespace, e.pod.Name}, action: Patch, pods: []*corev1.Pod{e.pod},
	}}
	removal := g.editPod(Operation{Op: "remove", Path: "/spec/schedulingGates"})
	apply := removal.apply
	removal.apply = func(t *trial) bool {
		t.Pods = append(t.Pods, e.pod)
		return apply(t)
	}
	g.add("Remove the gates, once what they wait for is done: their owner does so.", corrects, removal)
	e.Search = &Effort{Candidates: 1, Complete: true}
	g.tryOut(&g.out[0])
	if e.Search.Plans = e.lab.plans; e.Change == nil {
		e.Notes = append(e.Notes, "without its gates the pod would get no node either: nothing that the NodePools allow fits it")
	}
}

// daemon explains a pod of a DaemonSet, which runs on a node that exists, or not at all.
func (e *explanation) daemon() {
	owner := metav1.GetControllerOf(e.pod)
	name := "its DaemonSet"
	if owner != nil {
		name = "DaemonSet " + owner.Name
	}
	node := daemonNode(e.pod)
	if node == "" {
		e.conclude(Unschedulable, "is pending: it is of %s, and no node is launched for such pods.", name)
		return
	}
	e.conclude(Unschedulable, "is pending: %s wants it on node %s, which has no room for it or a taint that it does not tolerate; "+
		"no other node can be launched for it.", name, node)
	e.Node = e.nodeNamed(node)
}

// daemonNode is the node that the DaemonSet controller has chosen for its pod.
func daemonNode(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// untried explains a pod that its scheduler has not tried.
func (e *explanation) untried() {
	scheduler := cmp.Or(e.pod.Spec.SchedulerName, corev1.DefaultSchedulerName)
	waited := e.since(e.pod.CreationTimestamp.Time)
	if scheduler != corev1.DefaultSchedulerName {
		e.conclude(Untried, "is pending: spec.schedulerName is %s, and that scheduler has not tried it%s.",
			scheduler, prefixed(" for ", waited))
		return
	}
	e.conclude(Untried, "is pending: kube-scheduler has not tried it%s; nodes are launched only for pods that it cannot schedule.",
		prefixed(" for ", waited))
}

// prefixed adds a prefix to a text that is not empty.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
