// Package quarantine keeps a few pods from blocking all others. If some pods make planning fail, it finds their owners
// and leaves them out for a while, so that the other pods are planned.
package quarantine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Unit is the unit of quarantine: pods of one owner with the same requests. An edited pod is another unit, so it is
// planned at once.
type Unit struct {
	// Owner is the UID of the controller of the pods, or of the pod itself if it has none.
	Owner types.UID
	// Digest identifies what the pods request.
	Digest string
}

// Set is a set of units.
type Set map[Unit]bool

// Units computes the unit of each pod. It caches them, since a digest costs more than planning an ordinary pod, and
// computes one only for pods of suspected owners.
type Units struct{ cache map[*corev1.Pod]Unit }

// NewUnits returns an empty Census.
func NewUnits() *Units { return &Units{cache: map[*corev1.Pod]Unit{}} }

// Unit returns the pod's unit.
func (c *Units) Unit(pod *corev1.Pod) Unit {
	u, ok := c.cache[pod]
	if !ok {
		u = Unit{Owner: ownerOf(pod), Digest: digest(&pod.ObjectMeta, &pod.Spec)}
		c.cache[pod] = u
	}
	return u
}

// DaemonSetUnit returns the unit of a DaemonSet: its requests on new nodes, not its pods on existing ones.
func (c *Units) DaemonSetUnit(d *snapshot.DaemonSet) Unit {
	u := c.Unit(d.Pod)
	u.Owner = daemonSetOwner(d)
	return u
}

func daemonSetOwner(d *snapshot.DaemonSet) types.UID {
	return types.UID(fmt.Sprintf("daemonset/%s/%s", d.Namespace, d.Name))
}

func ownerOf(pod *corev1.Pod) types.UID {
	if snapshot.IsVirtual(pod) {
		return types.UID("capacity-buffer/" + buffer.BufferOf(pod).String())
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return owner.UID
	}
	return pod.UID
}

// revisionLabels are the labels in which controllers put the revision of a pod. Other labels may differ among pods of
// one revision.
var revisionLabels = []string{"pod-template-hash", "controller-revision-hash"}

// digest hashes what an owner may change in its pods: the containers' requests and the scheduling constraints. It omits
// what differs from pod to pod, or changes when a pod is bound.
func digest(o *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	type container struct {
		Resources corev1.ResourceRequirements
		Ports     []corev1.ContainerPort
	}
	of := func(list []corev1.Container) (out []container) {
		for i := range list {
			out = append(out, container{list[i].Resources, list[i].Ports})
		}
		return out
	}
	var labels []string
	for _, key := range revisionLabels {
		labels = append(labels, o.Labels[key])
	}
	data, err := json.Marshal([]any{
		labels, of(spec.InitContainers), of(spec.Containers), spec.Resources, spec.Overhead, spec.NodeSelector, spec.Affinity,
		spec.TopologySpreadConstraints, spec.RuntimeClassName,
	})
	if err != nil {
		return "" // then the owner alone identifies the unit
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
