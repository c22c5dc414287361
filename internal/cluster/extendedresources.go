package cluster

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// extendedResources decide which of the extended resources that pods request are served by DRA drivers, node by node and type by type,
// as kube-scheduler does: a node with a device plugin that reports an amount of the resource serves it by the plugin, also once the
// amount is used up; any other by the devices that a class with the name of the resource selects.
type extendedResources struct {
	*snapshotBuilder
	known *dynamicresources.Extended
	// requested are the resources of classes that some pod requests, sorted.
	requested []corev1.ResourceName
	// plugins are the kinds of nodes where a device plugin reports a resource.
	plugins map[pluginAt]bool
	served  map[corev1.ResourceName]bool
}

type pluginAt struct {
	nodeKind
	resource corev1.ResourceName
}

// serveExtended adds to nodes and instance types which extended resources devices serve there, and returns all that any serves.
func (w *snapshotBuilder) serveExtended(own map[string][]resourcev1.ResourceSliceSpec) []corev1.ResourceName {
	x := &extendedResources{
		snapshotBuilder: w, known: dynamicresources.NewExtended(w.Devices.Classes, w.Devices.Expressions),
		plugins: map[pluginAt]bool{}, served: map[corev1.ResourceName]bool{},
	}
	if x.requested = x.requestedByPods(); len(x.requested) == 0 {
		return nil
	}
	for i := range w.snap.Nodes {
		if n := &w.snap.Nodes[i]; n.Initialized {
			x.ofNode(n, own[n.Name])
		}
	}
	for i := range w.snap.Pools {
		x.ofPool(&w.snap.Pools[i])
	}
	for i := range w.snap.Nodes {
		if n := &w.snap.Nodes[i]; n.Claim != "" && !n.Initialized {
			x.ofNodeInFlight(n)
		}
	}
	return slices.Sorted(maps.Keys(x.served))
}

// requestedByPods are the resources of classes that pods to place or pods on nodes request.
func (x *extendedResources) requestedByPods() []corev1.ResourceName {
	var out []corev1.ResourceName
	note := func(pods []*corev1.Pod) {
		for _, pod := range pods {
			if !requestsExtended(pod) {
				continue
			}
			for _, name := range x.known.Requested(snapshot.Requests(pod)) {
				if !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	note(x.snap.Pods)
	note(x.snap.Virtual)
	for i := range x.snap.Nodes {
		note(x.snap.Nodes[i].Pods)
	}
	slices.Sort(out)
	return out
}

// requestsExtended reports whether a container of the pod requests a resource with a domain. Most pods request none.
func requestsExtended(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if strings.Contains(string(name), "/") {
					return true
				}
			}
		}
	}
	return false
}

// ofNode is for a node that is initialized, with the devices that it has published.
func (x *extendedResources) ofNode(n *snapshot.Node, own []resourcev1.ResourceSliceSpec) {
	for _, name := range x.requested {
		if q := n.Allocatable[name]; !q.IsZero() {
			x.plugins[pluginAt{nodeKind{n.Pool, n.Labels[corev1.LabelInstanceTypeStable]}, name}] = true
			continue
		}
		if amount := x.known.Amount(name, own); amount > 0 && !n.Deleting {
			x.serve(n, name, *resource.NewQuantity(amount, resource.DecimalSI))
		}
	}
}

func (x *extendedResources) serve(n *snapshot.Node, name corev1.ResourceName, amount resource.Quantity) {
	n.Allocatable = maps.Clone(n.Allocatable) // the Node object has it
	if n.Allocatable == nil {
		n.Allocatable = corev1.ResourceList{}
	}
	n.Allocatable[name] = amount
	n.DRAResources = append(n.DRAResources, name)
	x.served[name] = true
}

// ofPool is for nodes that do not exist yet. Devices serve what no device plugin reports on another node of the pool and the type, if the
// type will have such devices, and no DaemonSet is a device plugin for them.
func (x *extendedResources) ofPool(p *snapshot.Pool) {
	shared := p.InstanceTypes
	types := shared
	for k, it := range shared {
		if len(it.DeviceSlices) == 0 {
			continue
		}
		var changed *catalog.InstanceType
		for _, name := range x.requested {
			amount := x.known.Amount(name, it.DeviceSlices)
			if amount == 0 || x.plugins[pluginAt{nodeKind{p.NodePool.Name, it.Name}, name}] || x.hasPlugin(name) {
				continue
			}
			if changed == nil {
				own := *it
				own.Capacity, own.Allocatable = maps.Clone(it.Capacity), maps.Clone(it.Allocatable)
				changed = &own
			}
			q := *resource.NewQuantity(amount, resource.DecimalSI)
			changed.Capacity[name], changed.Allocatable[name] = q, q
			changed.DRAResources = append(changed.DRAResources, name)
			x.served[name] = true
		}
		if changed == nil {
			continue
		}
		if &types[0] == &shared[0] { // shared with other snapshots
			types = slices.Clone(types)
		}
		types[k] = changed
	}
	p.InstanceTypes = types
}

// ofNodeInFlight is for a node that is not initialized: what its type serves by the devices that its claim was launched for.
func (x *extendedResources) ofNodeInFlight(n *snapshot.Node) {
	name := n.Labels[corev1.LabelInstanceTypeStable]
	for i := range x.snap.Pools {
		p := &x.snap.Pools[i]
		if p.NodePool.Name != n.Pool {
			continue
		}
		for _, it := range p.InstanceTypes {
			if it.Name != name {
				continue
			}
			expected := it.WithDevicesOf(n.DRADrivers).DeviceSlices
			for _, name := range it.DRAResources {
				if amount := x.known.Amount(name, expected); amount > 0 {
					x.serve(n, name, *resource.NewQuantity(amount, resource.DecimalSI))
				}
			}
		}
	}
}

// hasPlugin reports whether a DaemonSet looks like the device plugin for a resource: its name or an image reports it, and names the vendor,
// as nvcr.io/nvidia/k8s-device-plugin does for nvidia.com/gpu.
func (x *extendedResources) hasPlugin(name corev1.ResourceName) bool {
	domain, kind, _ := strings.Cut(string(name), "/")
	vendor, _, _ := strings.Cut(domain, ".")
	about := func(text string) bool {
		return strings.Contains(text, "device-plugin") && (strings.Contains(text, vendor) || strings.Contains(text, kind))
	}
	return slices.ContainsFunc(x.snap.DaemonSets, func(d snapshot.DaemonSet) bool {
		if about(d.Name) {
			return true
		}
		return slices.ContainsFunc(d.Pod.Spec.Containers, func(c corev1.Container) bool { return about(c.Image) })
	})
}
