// Package quarantine keeps a few pods from holding up all others. Where planning fails on account of some pods, it finds their
// owners, leaves them out, and remembers them for a while, so that the rest is planned.
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

// Unit is what is left out together: pods of one owner that request the same. An edited pod is another unit, and so is
// tried at once.
type Unit struct {
	// Owner is the UID of the controller of the pods, or of the pod itself if it has none.
	Owner types.UID
	// Digest is of what the pods request.
	Digest string
}

// Set is a set of units.
type Set map[Unit]bool

// Census knows the unit of each pod. It remembers them, since digests cost more than plans of ordinary pods: one is
// computed only for pods of owners that somebody suspects.
type Census struct{ known map[*corev1.Pod]Unit }

// NewCensus returns an empty Census.
func NewCensus() *Census { return &Census{known: map[*corev1.Pod]Unit{}} }

// Unit is what the pod is left out with.
func (c *Census) Unit(pod *corev1.Pod) Unit {
	u, ok := c.known[pod]
	if !ok {
		u = Unit{Owner: ownerOf(pod), Digest: digest(&pod.ObjectMeta, &pod.Spec)}
		c.known[pod] = u
	}
	return u
}

// Daemons is what a DaemonSet is left out as: its weight on nodes to come, not its pods on those that exist.
func (c *Census) Daemons(d *snapshot.DaemonSet) Unit {
	u := c.Unit(d.Pod)
	u.Owner = daemonsOwner(d)
	return u
}

func daemonsOwner(d *snapshot.DaemonSet) types.UID {
	return types.UID(fmt.Sprintf("daemonset/%s/%s", d.Namespace, d.Name))
}

func ownerOf(pod *corev1.Pod) types.UID {
	if buffer.IsVirtual(pod) {
		return types.UID("capacity-buffer/" + buffer.Of(pod).String())
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return pod.UID
}

// revisions are the labels by which controllers tell the versions of their pods apart. The other labels may differ among pods
// of one version.
var revisions = []string{"pod-template-hash", "controller-revision-hash"}

// digest is of what may change in the pods of an owner: what their containers request, and where they may run. What differs
// from pod to pod, or changes when one is bound, is left out.
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
	for _, key := range revisions {
		labels = append(labels, o.Labels[key])
	}
	data, err := json.Marshal([]any{
		labels, of(spec.InitContainers), of(spec.Containers), spec.Resources, spec.Overhead, spec.NodeSelector, spec.Affinity,
		spec.TopologySpreadConstraints, spec.RuntimeClassName,
	})
	if err != nil {
		return "" // the owner alone tells its pods apart then
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
