package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// hasExtended: a pod that requests extended resources has as many devices as it requests of those that devices serve on its node. One
// that was nominated to the node keeps its place without.
func (c *check) hasExtended(pl *host, pod *corev1.Pod) {
	if pl.node != nil && slices.Contains(pl.node.Nominated, pod.UID) {
		return
	}
	want := int64(0)
	requests := snapshot.Requests(pod)
	for _, name := range extendedOn(pl) {
		q := requests[name]
		want += q.Value()
	}
	if want == 0 {
		return
	}
	for _, u := range c.devicesAt(pl) {
		if u.Pod.UID != pod.UID {
			continue
		}
		for i, claim := range u.Claims {
			if claim.Extended == nil || len(u.Grants) == 0 {
				continue
			}
			if !enough(pl, u.Grants, i, want) {
				c.failAt([]*host{pl}, "pod %s: it does not have the %d devices on %s that it requests by extended resources", name(pod), want, pl.name)
			}
			return
		}
	}
	c.failAt([]*host{pl}, "pod %s: it has no devices on %s for the extended resources that it requests", name(pod), pl.name)
}

// enough reports whether one of the grants has so many devices for the i-th claim, on each type that the host may become. A grant without
// is for a type that the host does not become, where a device plugin serves the resource.
func enough(pl *host, grants []snapshot.DeviceAllocation, i int, want int64) bool {
	has := func(on string) bool {
		return slices.ContainsFunc(grants, func(g snapshot.DeviceAllocation) bool {
			r := g.Results[i]
			return r != nil && int64(len(r.Devices.Results)) == want &&
				!slices.ContainsFunc(r.Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool {
					return strings.HasPrefix(d.Pool, snapshot.ExpectedPool) && !strings.Contains(d.Pool, "/"+on+"/")
				})
		})
	}
	if pl.launch == nil {
		return slices.ContainsFunc(grants, func(g snapshot.DeviceAllocation) bool {
			return g.Results[i] != nil && int64(len(g.Results[i].Devices.Results)) == want
		})
	}
	return !slices.ContainsFunc(pl.launch.InstanceTypes, func(it *catalog.InstanceType) bool { return !has(it.Name) })
}

// extendedOn are the extended resources that devices serve on the host, whichever type a launch becomes.
func extendedOn(pl *host) (out []corev1.ResourceName) {
	if pl.launch == nil {
		return pl.node.DRAResources
	}
	for i, it := range pl.launch.InstanceTypes {
		if i == 0 {
			out = slices.Clone(it.DRAResources)
			continue
		}
		out = slices.DeleteFunc(out, func(name corev1.ResourceName) bool { return !slices.Contains(it.DRAResources, name) })
	}
	return out
}

// usesExtended reports whether the pod requests an extended resource that devices serve on some node or type of the snapshot.
func usesExtended(s *snapshot.Snapshot, pod *corev1.Pod) bool {
	var served []corev1.ResourceName
	for i := range s.Nodes {
		served = append(served, s.Nodes[i].DRAResources...)
	}
	for i := range s.Pools {
		for _, it := range s.Pools[i].InstanceTypes {
			served = append(served, it.DRAResources...)
		}
	}
	if len(served) == 0 {
		return false
	}
	requests := snapshot.Requests(pod)
	return slices.ContainsFunc(served, func(name corev1.ResourceName) bool { q := requests[name]; return !q.IsZero() })
}
