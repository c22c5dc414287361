package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// attachedClaims are the claims that a node attaches, by driver.
type attachedClaims map[string]map[types.NamespacedName]bool

func (a attachedClaims) add(list []mount) {
	for _, m := range list {
		if a[m.driver] == nil {
			a[m.driver] = map[types.NamespacedName]bool{}
		}
		a[m.driver][m.claim] = true
	}
}

// daemonMounts are the claims of a DaemonSet's pod. Those of a template's ephemeral volumes do not exist yet, and their
// storage class names the driver.
func (c *check) daemonMounts(daemon *corev1.Pod) []mount {
	out := c.mounts(daemon)
	for i := range out {
		m := &out[i]
		for _, v := range daemon.Spec.Volumes {
			if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil || daemon.Name+"-"+v.Name != m.claim.Name ||
				c.s.Volumes.Claims[m.claim] != nil {
				continue
			}
			if m.driver = c.provisioner(v.Ephemeral.VolumeClaimTemplate.Spec.StorageClassName); m.driver == ebsInTree {
				m.driver = ebs
			}
		}
	}
	return out
}

// provisioner is the driver of a storage class; empty if it is not known.
func (c *check) provisioner(class *string) string {
	if class == nil || c.s.Volumes.StorageClasses[*class] == nil {
		return ""
	}
	return c.s.Volumes.StorageClasses[*class].Provisioner
}

// volumes: whatever type of a claim is launched, it can attach the pods' volumes; and a claim of access mode
// ReadWriteOncePod has one pod.
func (c *check) volumes() {
	for _, pl := range c.hosts {
		c.hasLocalStorage(pl)
		if pl.launch == nil {
			continue
		}
		if slices.ContainsFunc(pl.launch.InstanceTypes, func(it *catalog.InstanceType) bool { return len(it.VolumeLimits) > 0 }) {
			c.launchAttaches(pl)
		}
	}
	c.oncePerPod()
}

// launchAttaches: each type attaches the volumes of the pods and of the daemons that run on some node of it. A driver
// of which no pod has a volume does not count: daemons alone are the business of their DaemonSets.
func (c *check) launchAttaches(pl *host) {
	claims := attachedClaims{}
	for _, pod := range pl.pods {
		claims.add(c.mounts(pod))
	}
	always, mixed := c.daemons(pl)
	for _, it := range pl.launch.InstanceTypes {
		all := attachedClaims{}
		for _, pod := range pl.pods {
			all.add(c.mounts(pod))
		}
		for _, d := range always {
			all.add(c.daemonMounts(d))
		}
		for _, d := range mixed {
			runs := func(out outcome) bool { return out.it.Name == it.Name && c.daemonOn(d, pl, out) }
			if slices.ContainsFunc(pl.outcomes, runs) {
				all.add(c.daemonMounts(d))
			}
		}
		for driver, limit := range it.VolumeLimits {
			if n := len(all[driver]); n > limit && len(claims[driver]) > 0 {
				c.failAt([]*host{pl}, "%s: %d volumes of %s, and a node of type %s can attach %d", pl.name, n, driver, it.Name, limit)
			}
		}
	}
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

// sharesVolume reports whether the pod shares a claim with another pod that has a node, or that still runs on a node
// that is being removed.
func (c *check) sharesVolume(pod *corev1.Pod) bool {
	mine := c.mounts(pod)
	uses := func(other *corev1.Pod) bool {
		return other.UID != pod.UID && slices.ContainsFunc(c.mounts(other), func(n mount) bool {
			return slices.ContainsFunc(mine, func(m mount) bool { return m.claim == n.claim })
		})
	}
	return len(mine) > 0 && (slices.ContainsFunc(c.pods.all, func(m *scheduledPod) bool { return uses(m.pod) }) ||
		slices.ContainsFunc(c.s.Pods, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && uses(p) }))
}
