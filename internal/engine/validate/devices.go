package validate

import corev1 "k8s.io/api/core/v1"

// asksDevices tells whether a pod has claims of dynamic resource allocation, anywhere in its spec.
func asksDevices(pod *corev1.Pod) bool {
	n := len(pod.Spec.ResourceClaims)
	for i := range pod.Spec.Containers {
		n += len(pod.Spec.Containers[i].Resources.Claims)
	}
	for i := range pod.Spec.InitContainers {
		n += len(pod.Spec.InitContainers[i].Resources.Claims)
	}
	return n > 0
}

// devices: no plan places a pod that has such claims while the snapshot does not know of devices.
func (c *check) devices() {
	if c.s.Devices != nil {
		return
	}
	for _, pl := range c.places {
		for _, pod := range pl.pods {
			if asksDevices(pod) {
				c.failAt([]*place{pl}, "pod %s has resource claims, and is placed on %s", name(pod), pl.name)
			}
		}
	}
}
