package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// HasClaims reports whether the pod has a volume with a claim.
func HasClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}
