package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// manyAxes is the number of resources up to which each named resource gets an axis. Every axis costs time and memory
// for each instance type and node, and a pod can name thousands. Real clusters have about ten, so 64 leaves ordinary
// snapshots as they are.
const manyAxes = 64

// boundedAxes are the axes of what the lists request. Of more than manyAxes, it drops resources that no node and no
// instance type has, and marks classes that request some of these: nothing holds them.
func (sv *solver) boundedAxes(lists []corev1.ResourceList) resources.Axes {
	all := resources.NewAxes(lists...)
	if all.Len() <= manyAxes {
		return all
	}
	had := corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}}
	maps.Copy(had, lists[len(lists)-1]) // CSI drivers with limits; nodes do not list them as resources
	for i := range sv.s.Nodes {
		maps.Copy(had, sv.s.Nodes[i].Allocatable)
	}
	for i := range sv.s.Pools {
		for _, it := range sv.s.Pools[i].InstanceTypes {
			maps.Copy(had, it.Allocatable)
		}
	}
	for _, d := range sv.daemons { // one missing resource excludes a DaemonSet as well as many do
		for _, name := range slices.Sorted(maps.Keys(d.Requests)) {
			if q := d.Requests[name]; !q.IsZero() && isZero(had, name) {
				had[name] = q
				break
			}
		}
	}
	for _, c := range sv.allClasses {
		for name, q := range c.ResourceList() {
			if _, known := had[name]; !known && !q.IsZero() {
				c.unknownResources = append(c.unknownResources, name)
			}
		}
		slices.Sort(c.unknownResources)
	}
	unknown := func(name corev1.ResourceName) bool {
		_, known := had[name]
		return !known
	}
	names := corev1.ResourceList{}
	for _, name := range slices.DeleteFunc(slices.Clone(all.All()), unknown) {
		names[name] = resource.Quantity{}
	}
	return resources.NewAxes(names)
}

func isZero(l corev1.ResourceList, name corev1.ResourceName) bool {
	q := l[name]
	return q.IsZero()
}

// readDaemons reads the DaemonSets with pods that can run on some node.
func (sv *solver) readDaemons() {
	for i := range sv.s.DaemonSets {
		d, ok := existing.NewDaemon(sv.s, &sv.s.DaemonSets[i])
		if !ok {
			continue
		}
		if len(d.Requests) > manyAxes { // every launch has a copy of the list
			maps.DeleteFunc(d.Requests, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
		}
		sv.daemons = append(sv.daemons, d)
	}
	ports := make([][]resources.HostPort, len(sv.daemons))
	for i, d := range sv.daemons {
		ports[i] = d.Ports
	}
	rivals, contested := resources.Rivals(ports)
	for i, d := range sv.daemons {
		d.Rivals, d.Contested = rivals[i], contested[i]
	}
}
