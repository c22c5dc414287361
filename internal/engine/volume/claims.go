package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ClaimName is the PersistentVolumeClaim behind a pod's volume.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) (string, bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, true
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	}
	return "", false
}

// HasClaims reports whether the pod has a volume with a claim.
func HasClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}
