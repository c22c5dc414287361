package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// wantsDevices tells whether a pod asks for devices by dynamic resource allocation. Which nodes have them is not known here, so
// that such a pod is not planned, and a daemon of that kind is not expected on new nodes.
func wantsDevices(spec *corev1.PodSpec) bool {
	claims := func(c corev1.Container) bool { return len(c.Resources.Claims) > 0 }
	return len(spec.ResourceClaims) > 0 || slices.ContainsFunc(spec.Containers, claims) || slices.ContainsFunc(spec.InitContainers, claims)
}
