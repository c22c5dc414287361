package volume

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// OfDaemon are the volumes that the pod attaches to its node. The ephemeral volumes of a template have no claims
// yet, so that their storage classes name the drivers.
func OfDaemon(s *snapshot.Snapshot, pod *corev1.Pod) []Attachment {
	if !HasClaims(pod) {
		return nil
	}
	volumes := Of(s, pod)
	for i := range volumes {
		if volumes[i].claim == nil {
			volumes[i].class = ephemeralClass(s, pod, volumes[i].key.Name)
		}
	}
	out := Attachments(volumes)
	slices.SortFunc(out, attachmentOrder)
	return slices.Compact(out)
}

// ephemeralClass is the storage class of the pod's ephemeral volume with this claim; nil if it is not known.
func ephemeralClass(s *snapshot.Snapshot, pod *corev1.Pod, claim string) *storagev1.StorageClass {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if name, _ := snapshot.ClaimName(pod, v); name != claim || v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		if class := v.Ephemeral.VolumeClaimTemplate.Spec.StorageClassName; class != nil {
			return s.Volumes.StorageClasses[*class]
		}
	}
	return nil
}

// attachmentOrder is by driver, then by claim.
func attachmentOrder(a, b Attachment) int {
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Claim.Namespace, b.Claim.Namespace), cmp.Compare(a.Claim.Name, b.Claim.Name))
}
