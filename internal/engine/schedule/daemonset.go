package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// daemon is the pod of a DaemonSet, which new nodes must have room for.
type daemon struct {
	tolerations []corev1.Toleration
	// alternatives are the label requirements of the pod, one of which must hold.
	alternatives []requirement.Set
	requests     corev1.ResourceList
	vec          vec
	ports        []hostPort
}

// newDaemon parses a DaemonSet; false when its pods can run on no known node.
func newDaemon(s *snapshot.Snapshot, d *snapshot.DaemonSet) (*daemon, bool) {
	pod := d.Pod
	if pod == nil || s.Devices == nil && wantsDevices(&pod.Spec) {
		return nil, false
	}
	node, err := s.Labels.FromPod(&pod.Spec)
	if err != nil {
		return nil, false
	}
	out := &daemon{
		tolerations: pod.Spec.Tolerations,
		requests:    snapshot.DaemonRequests(pod),
		ports:       hostPorts(pod),
	}
	if len(out.requests) > manyAxes { // every launch has a copy of the list
		maps.DeleteFunc(out.requests, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	}
	for _, term := range node.Required {
		out.alternatives = append(out.alternatives, node.Selector.Intersect(term))
	}
	if node.Required == nil {
		out.alternatives = []requirement.Set{node.Selector}
	}
	return out, len(out.alternatives) > 0
}

// withSoftTaints adds a toleration of all taints with effect PreferNoSchedule: these do not keep DaemonSet pods off a
// node.
func withSoftTaints(tolerations []corev1.Toleration) []corev1.Toleration {
	return append(
		slices.Clone(tolerations),
		corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule},
	)
}

// runsOn reports whether the daemon's pods run on an existing node.
func (d *daemon) runsOn(labels requirement.Set, taints []corev1.Taint) bool {
	if _, blocked := snapshot.Untolerated(withSoftTaints(d.tolerations), taints); blocked {
		return false
	}
	for _, alt := range d.alternatives {
		if labels.Compatible(alt, nil) {
			return true
		}
	}
	return false
}
