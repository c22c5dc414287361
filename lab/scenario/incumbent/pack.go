package incumbent

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The one instance type that Loop launches, and what its nodes leave to pods that are of no DaemonSet.
const (
	loopType       = "m5.xlarge"
	loopMilliCPU   = 3500
	loopMemory     = 13 << 30
	loopPodsOfNode = 25
	onDemand       = "on-demand"
)

// room is what is free on a node, or will be once it has joined.
type room struct{ milliCPU, memory, pods int64 }

// emptyNode is the room of a node without pods.
func emptyNode() room { return room{milliCPU: loopMilliCPU, memory: loopMemory, pods: loopPodsOfNode} }

// take takes the requests of a pod, and reports whether they fit.
func (r *room) take(pod *corev1.Pod) bool {
	cpu, memory := requests(pod)
	if r.milliCPU < cpu || r.memory < memory || r.pods < 1 {
		return false
	}
	r.milliCPU, r.memory, r.pods = r.milliCPU-cpu, r.memory-memory, r.pods-1
	return true
}

func requests(pod *corev1.Pod) (milliCPU, memory int64) {
	for i := range pod.Spec.Containers {
		in := pod.Spec.Containers[i].Resources.Requests
		milliCPU += in.Cpu().MilliValue()
		memory += in.Memory().Value()
	}
	return milliCPU, memory
}

// launches is the nodes that pending pods need beside existing nodes and those in flight: first fit, in the order of the pods. Pods that
// fit no empty node need none.
func launches(free []room, pending []*corev1.Pod) (nodes []room) {
	free = slices.Clone(free)
	known := len(free)
	for _, pod := range pending {
		placed := false
		for i := range free {
			if placed = free[i].take(pod); placed {
				break
			}
		}
		if fresh := emptyNode(); !placed && fresh.take(pod) {
			free = append(free, fresh)
		}
	}
	return free[known:]
}

// cpuOf is what the pods of a new node request, as in a NodeClaim.
func cpuOf(left room) string {
	return resource.NewMilliQuantity(max(1, loopMilliCPU-left.milliCPU), resource.DecimalSI).String()
}

// serves reports whether Loop launches nodes for a pod: it waits for a node, kube-scheduler has found none, and it requests nothing but
// resources.
func serves(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending {
		return false
	}
	if len(pod.Spec.NodeSelector) > 0 || pod.Spec.Affinity != nil {
		return false
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// holds reports whether a pod keeps its node from being empty.
func holds(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, o := range pod.OwnerReferences {
		if o.Kind == "DaemonSet" || o.Kind == "Node" {
			return false
		}
	}
	return true
}

// roomOn is what pods leave of a node.
func roomOn(node *corev1.Node, pods []*corev1.Pod) room {
	allocatable := node.Status.Allocatable
	out := room{
		milliCPU: allocatable.Cpu().MilliValue(), memory: allocatable.Memory().Value(),
		pods: min(allocatable.Pods().Value(), math.MaxInt32),
	}
	for _, pod := range pods {
		cpu, memory := requests(pod)
		out.milliCPU, out.memory, out.pods = out.milliCPU-cpu, out.memory-memory, out.pods-1
	}
	return out
}
