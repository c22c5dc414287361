package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// AttachmentsOf are the volumes that a pod attaches: those of its claims, and EBS volumes that it names itself.
func AttachmentsOf(s *snapshot.Snapshot, pod *corev1.Pod) []Attachment {
	var out []Attachment
	if HasClaims(pod) {
		out = Attachments(Of(s, pod))
	}
	return append(out, Inline(pod)...)
}

// Inline are the EBS volumes that the pod names itself, without a claim.
func Inline(pod *corev1.Pod) (out []Attachment) {
	for i := range pod.Spec.Volumes {
		if disk := pod.Spec.Volumes[i].AWSElasticBlockStore; disk != nil {
			out = append(out, Attachment{ebsDriver, types.NamespacedName{Name: "inline " + disk.VolumeID}})
		}
	}
	return out
}
