package validate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// volumes: whatever type of a claim is launched, it can attach the pods' volumes; and a claim of access mode
// ReadWriteOncePod has one pod.
func (c *check) volumes() {
	for _, pl := range c.hosts {
		if pl.launch == nil {
			continue
		}
		claims := map[string]map[types.NamespacedName]bool{}
		for _, pod := range pl.pods {
			for _, m := range c.mounts(pod) {
				if claims[m.driver] == nil {
					claims[m.driver] = map[types.NamespacedName]bool{}
				}
				claims[m.driver][m.claim] = true
			}
		}
		for _, it := range pl.launch.InstanceTypes {
			for driver, limit := range it.VolumeLimits {
				if n := len(claims[driver]); n > limit {
					c.failAt([]*host{pl}, "%s: %d volumes of %s, and a node of type %s can attach %d", pl.name, n, driver, it.Name, limit)
				}
			}
		}
	}
	c.oncePerPod()
}

func (c *check) oncePerPod() {
	users, planned := map[types.NamespacedName][]*corev1.Pod{}, map[types.NamespacedName]bool{}
	note := func(pod *corev1.Pod, isPlanned bool) {
		seen := map[types.NamespacedName]bool{}
		for _, m := range c.mounts(pod) {
			pvc := c.s.Volumes.Claims[m.claim]
			if pvc == nil || seen[m.claim] {
				continue
			}
			seen[m.claim] = true
			for _, mode := range pvc.Spec.AccessModes {
				if mode == corev1.ReadWriteOncePod {
					users[m.claim] = append(users[m.claim], pod)
					planned[m.claim] = planned[m.claim] || isPlanned
				}
			}
		}
	}
	for _, pl := range c.hosts {
		if pl.node != nil {
			for _, pod := range pl.node.Pods {
				if !snapshot.Terminal(pod) && !c.planned[pod.UID] {
					note(pod, false)
				}
			}
		}
		for _, pod := range pl.pods {
			note(pod, true)
		}
	}
	for claim, pods := range users {
		if len(pods) > 1 && planned[claim] {
			c.fail("volume claim %s is for one pod, and %s and %s use it", claim, name(pods[0]), name(pods[1]))
		}
	}
}

// sharesVolume reports whether the pod shares a claim with another pod that has a node.
func (c *check) sharesVolume(pod *corev1.Pod) bool {
	for _, m := range c.mounts(pod) {
		for _, other := range c.pods.all {
			if other.pod.UID == pod.UID {
				continue
			}
			for _, n := range c.mounts(other.pod) {
				if n.claim == m.claim {
					return true
				}
			}
		}
	}
	return false
}
