package existing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Daemon is a DaemonSet, which existing nodes are compared with.
type Daemon struct {
	nodepool.Daemon
	namespace, name string
	pod             *corev1.Pod
	// attached are the volumes that count against a node's attach limits.
	attached []volume.Attachment
}

// NewDaemon parses a DaemonSet; false when its pods can run on no known node. Its amounts are for the caller to set.
func NewDaemon(s *snapshot.Snapshot, d *snapshot.DaemonSet) (*Daemon, bool) {
	pod := d.Pod
	if pod == nil || s.Devices == nil && snapshot.WantsDevices(&pod.Spec) {
		return nil, false
	}
	node, err := s.NodeSelection(&pod.Spec)
	if err != nil {
		return nil, false
	}
	out := &Daemon{
		Daemon: nodepool.Daemon{
			Tolerations: pod.Spec.Tolerations,
			Requests:    s.Settings.Compared(&pod.Spec, snapshot.DaemonRequests(pod)),
			Ports:       resources.HostPorts(pod),
		},
		namespace: d.Namespace,
		name:      d.Name,
		pod:       pod,
		attached:  volume.OfDaemon(s, pod),
	}
	for _, a := range out.attached {
		out.Drivers = append(out.Drivers, a.Driver)
	}
	for _, term := range node.Required {
		out.Alternatives = append(out.Alternatives, node.Selector.Intersect(term))
	}
	if node.Required == nil {
		out.Alternatives = []requirement.Set{node.Selector}
	}
	return out, len(out.Alternatives) > 0
}

// Name is the name of the DaemonSet, with its namespace.
func (d *Daemon) Name() string { return d.namespace + "/" + d.name }

// Pod is a pod of the DaemonSet.
func (d *Daemon) Pod() *corev1.Pod { return d.pod }

// isOn reports whether the daemon's pod is among the pods of a node.
func (d *Daemon) isOn(pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return p.Namespace == d.namespace && !snapshot.Terminal(p) && slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == "DaemonSet" && o.APIVersion == "apps/v1" && o.Name == d.name
		})
	})
}

// runsOn reports whether the daemon's pods run on an existing node.
func (d *Daemon) runsOn(labels requirement.Set, taints []corev1.Taint) bool {
	return d.mayRunOn(labels, taints, nil)
}

// mayRunOn is runsOn for a node that may still get the undefined labels.
func (d *Daemon) mayRunOn(labels requirement.Set, taints []corev1.Taint, undefined map[string]bool) bool {
	if _, blocked := snapshot.UntoleratedHard(d.Tolerations, taints); blocked {
		return false
	}
	for _, alt := range d.Alternatives {
		if labels.Compatible(alt, undefined) {
			return true
		}
	}
	return false
}
