package schedule

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// daemon is a DaemonSet, which existing nodes are compared with.
type daemon struct {
	nodepool.Daemon
	namespace, name string
	// attached are the volumes that count against a node's attach limits.
	attached []attachment
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
		Daemon: nodepool.Daemon{
			Tolerations: pod.Spec.Tolerations,
			Requests:    snapshot.DaemonRequests(pod),
			Ports:       resources.HostPorts(pod),
		},
		namespace: d.Namespace,
		name:      d.Name,
		attached:  daemonAttachments(s, pod),
	}
	for _, a := range out.attached {
		out.Drivers = append(out.Drivers, a.driver)
	}
	if len(out.Requests) > manyAxes { // every launch has a copy of the list
		maps.DeleteFunc(out.Requests, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	}
	for _, term := range node.Required {
		out.Alternatives = append(out.Alternatives, node.Selector.Intersect(term))
	}
	if node.Required == nil {
		out.Alternatives = []requirement.Set{node.Selector}
	}
	return out, len(out.Alternatives) > 0
}

// daemonAttachments are the volumes that the pod attaches to its node. The ephemeral volumes of a template have no claims
// yet, so that their storage classes name the drivers.
func daemonAttachments(s *snapshot.Snapshot, pod *corev1.Pod) []attachment {
	if !hasClaims(pod) {
		return nil
	}
	volumes := podVolumes(s, pod)
	for i := range volumes {
		if volumes[i].claim == nil {
			volumes[i].class = ephemeralClass(s, pod, volumes[i].key.Name)
		}
	}
	out := attachments(volumes)
	slices.SortFunc(out, attachmentOrder)
	return slices.Compact(out)
}

// ephemeralClass is the storage class of the pod's ephemeral volume with this claim; nil if it is not known.
func ephemeralClass(s *snapshot.Snapshot, pod *corev1.Pod, claim string) *storagev1.StorageClass {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if name, _ := claimName(pod, v); name != claim || v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		if class := v.Ephemeral.VolumeClaimTemplate.Spec.StorageClassName; class != nil {
			return s.Volumes.StorageClasses[*class]
		}
	}
	return nil
}

// attachmentOrder is by driver, then by claim.
func attachmentOrder(a, b attachment) int {
	return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.claim.Namespace, b.claim.Namespace), cmp.Compare(a.claim.Name, b.claim.Name))
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
	if _, blocked := snapshot.UntoleratedHard(d.Tolerations, taints); blocked {
		return false
	}
	for _, alt := range d.Alternatives {
		if labels.Compatible(alt, nil) {
			return true
		}
	}
	return false
}
