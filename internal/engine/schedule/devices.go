package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
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

// allocateDevices tries each option of devices for the pod, until the bin has a type with one.
func (sv *solver) allocateDevices(b *bin, a binRequest, cands *nodepool.Candidates) (growth, *refusal) {
	if len(a.c.Devices()) == 0 {
		return sv.chooseDomains(b, a, cands)
	}
	options, _ := sv.devices.Options(a.c.Devices(), b.index, cands)
	last := &refusal{code: Devices, final: !devices.Shared(a.c.Devices())}
	for _, w := range options {
		with := cands.NarrowBy(w.Requirements())
		if with == nil {
			continue
		}
		g, why := sv.chooseDomains(b, a, with)
		if why == nil {
			g.devices = &w
			return g, nil
		}
		last = &refusal{code: why.code}
	}
	return growth{}, last
}

// withFirstDevices are the candidates of the first device option for a pod of the class in the bin; nil if there is
// none.
func (sv *solver) withFirstDevices(b *bin, c *class, cands *nodepool.Candidates) *nodepool.Candidates {
	if len(c.Devices()) == 0 {
		return cands
	}
	options, _ := sv.devices.Options(c.Devices(), b.index, cands)
	for _, w := range options {
		if with := cands.NarrowBy(w.Requirements()); with != nil {
			return with
		}
	}
	return nil
}

// allocateBinDevices allocates the devices of a growth.
func (sv *solver) allocateBinDevices(b *bin, pod *corev1.Pod, g growth) {
	if g.devices == nil {
		return
	}
	sv.devices.TakeOption(g.devices)
	b.deviceOptions = append(b.deviceOptions, g.devices)
	b.devices = append(b.devices, DeviceUse{Pod: pod, Claims: g.devices.Claims(), Grants: g.devices.Grants()})
}
