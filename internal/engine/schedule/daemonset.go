package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// daemon is the pod of a DaemonSet, which nodes must have room for.
type daemon struct {
	namespace, name string
	tolerations     []corev1.Toleration
	// alternatives are the label requirements of the pod, one of which must hold.
	alternatives []requirement.Set
	requests     corev1.ResourceList
	vec          resources.Vec
	ports        []resources.HostPort
	// attached are the volumes that count against a node's attach limits.
	attached []volume.Attachment
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
		namespace:   d.Namespace,
		name:        d.Name,
		tolerations: pod.Spec.Tolerations,
		requests:    snapshot.DaemonRequests(pod),
		ports:       resources.HostPorts(pod),
		attached:    volume.OfDaemon(s, pod),
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

// isOn reports whether the daemon's pod is among the pods of a node.
func (d *daemon) isOn(pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.Namespace == d.namespace && !snapshot.Terminal(p) && slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == "DaemonSet" && o.APIVersion == "apps/v1" && o.Name == d.name
		})
	})
}

// runsOn reports whether the daemon's pods run on an existing node.
func (d *daemon) runsOn(labels requirement.Set, taints []corev1.Taint) bool {
	if _, blocked := snapshot.UntoleratedHard(d.tolerations, taints); blocked {
		return false
	}
	for _, alt := range d.alternatives {
		if labels.Compatible(alt, nil) {
			return true
		}
	}
	return false
}
