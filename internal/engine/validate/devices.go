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

// devices: no plan places a pod that has such claims.
func (c *check) devices() {
	for _, pl := range c.p.Placements {
		for _, pod := range pl.Pods {
			if asksDevices(pod) {
				c.fail("pod %s has resource claims, and is placed on node %s", name(pod), pl.Node)
			}
		}
	}
	for i, l := range c.p.Launches {
		for _, pod := range l.Pods {
			if asksDevices(pod) {
				c.fail("pod %s has resource claims, and is placed in launch %d", name(pod), i)
			}
		}
	}
}
