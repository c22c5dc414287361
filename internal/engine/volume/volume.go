package volume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	ebsDriver = "ebs.csi.aws.com"
	// ebsInTree is the same driver under the name that it had inside Kubernetes.
	ebsInTree = "kubernetes.io/aws-ebs"
	// bindCompleted is the annotation of a claim whose binding is done.
	bindCompleted = "pv.kubernetes.io/bind-completed"
	// maxChoices bounds the combinations of topologies of one pod's volumes. Eight volumes with two zones each have 256
	// before those that exclude each other are dropped.
	maxChoices = 256
)

// Attachment is a volume that counts against the attach limit of its CSI driver on a node.
type Attachment struct {
	Driver string
	Claim  types.NamespacedName
}

// Volume is one claim of a pod, with its objects.
type Volume struct {
	key   types.NamespacedName
	claim *corev1.PersistentVolumeClaim
	pv    *corev1.PersistentVolume
	class *storagev1.StorageClass
}

// Key is the name of the claim.
func (v Volume) Key() types.NamespacedName { return v.key }

// lookUp finds the objects of a claim.
func lookUp(s *snapshot.Snapshot, namespace, name string) Volume {
	v := Volume{key: types.NamespacedName{Namespace: namespace, Name: name}}
	v.claim = s.Volumes.Claims[v.key]
	if v.claim == nil {
		return v
	}
	if v.claim.Spec.VolumeName != "" {
		v.pv = s.Volumes.Volumes[v.claim.Spec.VolumeName]
	}
	if name := v.claim.Spec.StorageClassName; name != nil && *name != "" {
		v.class = s.Volumes.StorageClasses[*name]
	}
	return v
}

// reason is a Reason that names the volume's claim.
func (v Volume) reason(code rejection.Code, format string, args ...any) rejection.Reason {
	return rejection.Reason{Code: code, Message: fmt.Sprintf("volume claim %q ", v.key.Name) + fmt.Sprintf(format, args...)}
}

// unsupported is the reason why nodes of this cloud cannot use the volume; the zero Reason if they can.
func (v Volume) unsupported(u snapshot.UnsupportedStorage) rejection.Reason {
	if driver := v.driver(); slices.Contains(u.Provisioners, driver) {
		return v.reason(rejection.Unsupported, "is provisioned by %q, which does not work on nodes of this cloud", driver)
	}
	if v.pv != nil || v.class == nil {
		return rejection.Reason{}
	}
	for _, term := range v.class.AllowedTopologies {
		for _, e := range term.MatchLabelExpressions {
			if slices.Contains(u.TopologyKeys, e.Key) {
				return v.reason(
					rejection.Unsupported,
					"is of storage class %q; its allowed topologies are over %q, a label that nodes of this cloud do not have",
					v.class.Name,
					e.Key,
				)
			}
		}
	}
	return rejection.Reason{}
}

// blocked is the reason why a pod with this volume must wait; the zero Reason if it need not.
func (v Volume) blocked() rejection.Reason {
	no := v.reason
	switch {
	case v.claim == nil:
		return no(rejection.Volume, "does not exist")
	case v.claim.DeletionTimestamp != nil:
		return no(rejection.Volume, "is being deleted")
	case v.claim.Status.Phase == corev1.ClaimLost:
		return no(rejection.Volume, "has lost its volume")
	}
	if name := v.claim.Spec.VolumeName; name != "" {
		switch {
		case v.pv == nil:
			return no(rejection.Volume, "is bound to volume %q, which does not exist", name)
		case v.pv.DeletionTimestamp != nil:
			return no(rejection.Volume, "is bound to volume %q, which is being deleted", name)
		}
		if _, ok := v.claim.Annotations[bindCompleted]; !ok {
			return no(rejection.VolumePending, "is not bound to volume %q yet", name)
		}
		return rejection.Reason{}
	}
	switch {
	case v.claim.Spec.StorageClassName == nil || *v.claim.Spec.StorageClassName == "":
		return no(rejection.VolumePending, "is not bound and names no storage class")
	case v.class == nil:
		return no(rejection.Volume, "names storage class %q, which does not exist", *v.claim.Spec.StorageClassName)
	case v.class.VolumeBindingMode != nil && *v.class.VolumeBindingMode == storagev1.VolumeBindingImmediate:
		return no(
			rejection.VolumePending,
			"waits to be bound: storage class %q binds immediately, and the volume's zone decides where the pod can run",
			v.class.Name,
		)
	}
	return rejection.Reason{}
}

// Alternatives are the label requirements of the volume's topology, one of which must hold; nil if there are none.
func (v Volume) Alternatives(labels requirement.Labels) ([]requirement.Set, error) {
	var out []requirement.Set
	if v.pv == nil {
		if v.class != nil {
			for _, term := range v.class.AllowedTopologies {
				if len(term.MatchLabelExpressions) > 0 {
					out = append(out, labels.FromTopologyTerm(term))
				}
			}
		}
		return out, nil
	}
	if v.pv.Spec.NodeAffinity == nil || v.pv.Spec.NodeAffinity.Required == nil {
		return nil, nil
	}
	for _, term := range v.pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if len(term.MatchExpressions) == 0 {
			continue
		}
		set, err := labels.FromExpressions(term.MatchExpressions)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.pv.Name, err)
		}
		if v.pv.Spec.Local != nil || v.pv.Spec.HostPath != nil {
			set = set.Without(corev1.LabelHostname) // the data is lost with its host, so a new node can start without it
		}
		out = append(out, set)
	}
	return out, nil
}

// driver is the CSI driver that attaches the volume; empty if none counts it.
func (v Volume) driver() string {
	name := ""
	switch {
	case v.pv != nil && v.pv.Spec.CSI != nil:
		name = v.pv.Spec.CSI.Driver
	case v.pv != nil && v.pv.Spec.AWSElasticBlockStore != nil:
		name = ebsDriver
	case v.pv == nil && v.class != nil:
		name = v.class.Provisioner
	}
	if name == ebsInTree {
		return ebsDriver
	}
	return name
}

// Of looks up all claims of a pod.
func Of(s *snapshot.Snapshot, pod *corev1.Pod) []Volume {
	var out []Volume
	for i := range pod.Spec.Volumes {
		if name, ok := snapshot.ClaimName(pod, &pod.Spec.Volumes[i]); ok {
			out = append(out, lookUp(s, pod.Namespace, name))
		}
	}
	return out
}

// Alternatives combines the topologies of all the pod's volumes: every combination that one node can satisfy, or,
// if there is none, all combinations, so that the reason can be explained.
func Alternatives(s *snapshot.Snapshot, volumes []Volume) ([]requirement.Set, []rejection.Reason) {
	out := []requirement.Set{{}}
	for _, v := range volumes {
		for _, why := range []rejection.Reason{v.blocked(), v.unsupported(s.Volumes.Unsupported)} {
			if why.Code != "" {
				return nil, []rejection.Reason{why}
			}
		}
		alternatives, err := v.Alternatives(s.Labels)
		if err != nil {
			return nil, []rejection.Reason{{Code: rejection.Volume, Message: err.Error()}}
		}
		if len(alternatives) == 0 {
			continue
		}
		var good, all []requirement.Set
		for _, a := range out {
			for _, b := range alternatives {
				both := a.Intersect(b)
				all = append(all, both)
				if a.Overlaps(b) {
					good = append(good, both)
				}
			}
		}
		if len(good) == 0 {
			good = all
		}
		if len(good) > maxChoices {
			return nil, []rejection.Reason{
				{Code: rejection.Unsupported, Message: fmt.Sprintf("the topologies of the pod's volumes combine in more than %d ways", maxChoices)},
			}
		}
		out = good
	}
	return out, nil
}

// Attachments are the volumes that count against an attach limit of the node.
func Attachments(volumes []Volume) []Attachment {
	var out []Attachment
	for _, v := range volumes {
		if d := v.driver(); d != "" {
			out = append(out, Attachment{d, v.key})
		}
	}
	return out
}
