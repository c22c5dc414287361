package schedule

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// findFreeDevices finds the devices that a run can allocate. Pods to be scheduled, and those on removed nodes, free
// theirs.
func (r *run) findFreeDevices(queue []*queuedPod) {
	r.devices.End()
	if !slices.ContainsFunc(queue, func(q *queuedPod) bool { return len(q.class.Devices()) > 0 }) {
		return
	}
	leaving := map[types.UID]bool{}
	for _, q := range queue {
		leaving[q.pod.UID] = true
	}
	for _, n := range r.nodes.All() {
		if !n.Exists() || n.Source().Deleting {
			for _, pod := range n.Source().Pods {
				leaving[pod.UID] = true
			}
		}
	}
	r.devices.Begin(leaving)
}
