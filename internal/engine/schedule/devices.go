package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// findFreeDevices finds the devices that a run can allocate. Pods to be scheduled, and those on removed nodes, free
// theirs.
func (sv *solver) findFreeDevices(queue []*queuedPod) {
	sv.devices.End()
	if !slices.ContainsFunc(queue, func(q *queuedPod) bool { return len(q.class.Devices()) > 0 }) {
		return
	}
	leaving := map[types.UID]bool{}
	for _, q := range queue {
		leaving[q.pod.UID] = true
	}
	for _, n := range sv.nodes {
		if n.removed || n.src.Deleting {
			for _, pod := range n.src.Pods {
				leaving[pod.UID] = true
			}
		}
	}
	sv.devices.Begin(leaving)
}

// site is the node from the perspective of devices.
func (sv *solver) site(n *node) snapshot.DeviceNode {
	if n.site.Node == "" {
		n.site = sv.devices.Node(n.src, n.Labels)
	}
	return n.site
}

// hasDevices reports whether a node has devices for the pods of the class, and if not, whether that is final in this
// run.
func (sv *solver) hasDevices(n *node, c *class) (ok, never bool) {
	if len(c.Devices()) == 0 {
		return true, false
	}
	_, err := sv.devices.Find(c.Devices(), sv.site(n))
	return err == nil, !devices.Shared(c.Devices())
}

// allocateNodeDevices allocates devices for a pod on the node. A pod that keeps its node in any case may get none.
func (sv *solver) allocateNodeDevices(n *node, c *class, pod *corev1.Pod) {
	if len(c.Devices()) == 0 {
		return
	}
	if g, err := sv.devices.Find(c.Devices(), sv.site(n)); err == nil {
		sv.devices.Take(c.Devices(), g)
		n.devices = append(n.devices, DeviceUse{Pod: pod, Claims: c.Devices(), Grants: []snapshot.DeviceAllocation{g}})
	}
}
