package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Attachable volumes are an axis per CSI driver that has a known limit on some instance type. A pod requests one unit per
// volume of its own. Volumes that several pods share are counted where the pods are: see bin.sharedVolumes.

// axisPrefix is the prefix of Kubernetes' resource names for attachable volumes.
const axisPrefix = corev1.ResourceAttachableVolumesPrefix + "csi-"

// unlimited is the room for volumes on nodes without a known limit: more than any node can attach.
const unlimited = 1 << 20

// limitedDrivers are the axes of drivers that pods have volumes of and that some type limits.
func (sv *solver) limitedDrivers() corev1.ResourceList {
	sv.uses = map[types.NamespacedName]int{}
	sv.drivers = map[string]corev1.ResourceName{}
	wanted := map[string]bool{}
	note := func(pod *corev1.Pod) {
		if !hasClaims(pod) {
			return
		}
		for _, a := range attachments(podVolumes(sv.s, pod)) {
			sv.uses[a.claim]++
			wanted[a.driver] = true
		}
	}
	for _, pod := range sv.s.Pods {
		note(pod)
	}
	for i := range sv.s.Nodes {
		for _, pod := range sv.s.Nodes[i].Pods {
			if !sv.pending[pod.UID] && !snapshot.Terminal(pod) {
				note(pod)
			}
		}
	}
	out := corev1.ResourceList{}
	for i := range sv.s.Pools {
		for _, it := range sv.s.Pools[i].InstanceTypes {
			for driver := range it.VolumeLimits {
				if wanted[driver] {
					sv.drivers[driver] = corev1.ResourceName(axisPrefix + driver)
					out[sv.drivers[driver]] = resource.Quantity{}
				}
			}
		}
	}
	return out
}

// forgetSharers removes pending pods that are unplaceable or invalid from the users of claims: a pod that shares a
// claim with these alone is not bound by it.
func (sv *solver) forgetSharers(queue []*queuedPod) {
	for _, q := range queue {
		if !q.class.unplaceable() && len(q.class.invalid) == 0 || !sv.pending[q.pod.UID] || !hasClaims(q.pod) {
			continue
		}
		for _, a := range attachments(podVolumes(sv.s, q.pod)) {
			sv.uses[a.claim]--
		}
	}
}

func hasClaims(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

// addVolumes adds the volumes of the class's pods to their requests.
func (sv *solver) addVolumes(c *class) {
	if len(sv.drivers) == 0 || !hasClaims(c.pod) {
		return
	}
	seen := map[attachment]bool{}
	for _, a := range attachments(podVolumes(sv.s, c.pod)) {
		name, limited := sv.drivers[a.driver]
		if !limited || seen[a] {
			continue
		}
		seen[a] = true
		if sv.uses[a.claim] > 1 {
			c.shared = append(c.shared, a)
			continue
		}
		c.requests[sv.axes.IndexOf(name)]++
	}
}

// requestsIn is what a pod of the class requests in the bin: a volume that it shares with pods there is attached
// already.
func (sv *solver) requestsIn(b *bin, c *class) resources.Vec {
	if len(c.shared) == 0 {
		return c.requests
	}
	out := slices.Clone(c.requests)
	for _, a := range c.shared {
		if !b.sharedVolumes[a] {
			out[sv.axes.IndexOf(sv.drivers[a.driver])]++
		}
	}
	return out
}

// limitVolumes writes the attach limits of a type into a room, less what its daemons attach.
func (sv *solver) limitVolumes(room resources.Vec, limits map[string]int, attached map[string]int) {
	for driver, name := range sv.drivers {
		limit, known := limits[driver]
		if !known {
			limit = unlimited
		}
		room[sv.axes.IndexOf(name)] = int64(max(0, limit-attached[driver]))
	}
}

// volumeLimits are the attach limits of an existing node. Until it has a CSINode object, they are those of its type.
func (sv *solver) volumeLimits(n *snapshot.Node) map[string]int32 {
	if n.Initialized || n.Claim == "" {
		return n.VolumeLimits
	}
	for i := range sv.s.Pools {
		if sv.s.Pools[i].NodePool.Name != n.Pool {
			continue
		}
		for _, it := range sv.s.Pools[i].InstanceTypes {
			if it.Name != n.Labels[corev1.LabelInstanceTypeStable] || len(it.VolumeLimits) == 0 {
				continue
			}
			out := map[string]int32{}
			for driver, limit := range it.VolumeLimits {
				out[driver] = int32(limit)
			}
			for driver, limit := range n.VolumeLimits {
				out[driver] = limit
			}
			return out
		}
	}
	return n.VolumeLimits
}
