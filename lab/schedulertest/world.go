package schedulertest

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// emptyHost is the name of the node that stands for hosts without pods: it has no room, but counts for spreads over hosts.
const emptyHost = "empty-host"

// ForWorld starts a scheduler over the namespaces and the storage of a Snapshot.
func ForWorld(s *snapshot.Snapshot) (*Scheduler, error) {
	objects := map[string][]runtime.Object{}
	for name, labels := range s.Namespaces {
		objects["Namespace"] = append(objects["Namespace"], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for _, v := range s.Volumes.Volumes {
		objects["PersistentVolume"] = append(objects["PersistentVolume"], v)
	}
	for _, c := range s.Volumes.Claims {
		objects["PersistentVolumeClaim"] = append(objects["PersistentVolumeClaim"], c)
	}
	for _, c := range s.Volumes.StorageClasses {
		objects["StorageClass"] = append(objects["StorageClass"], c)
	}
	return NewScheduler(objects)
}

// OfWorld is the Filter with which propertytest carries plans out.
func (s *Scheduler) OfWorld(c *propertytest.Cluster, pod *corev1.Pod, node *propertytest.ClusterNode) string {
	var nodes []*corev1.Node
	var csi []*storagev1.CSINode
	var pods []*corev1.Pod
	for _, n := range c.Nodes {
		nodes = append(nodes, nodeObject(n, n.Name, n.Allocatable))
		csi = append(csi, csiNode(n))
		for _, p := range n.Pods {
			bound := *p
			bound.Spec.NodeName = n.Name
			pods = append(pods, &bound)
		}
	}
	if c.EmptyHost {
		nodes = append(nodes, nodeObject(node, emptyHost, corev1.ResourceList{corev1.ResourcePods: resource.Quantity{}}))
	}
	s.Nodes(nodes, csi, pods)
	return s.Filter(pod, node.Name)
}

func nodeObject(n *propertytest.ClusterNode, name string, allocatable corev1.ResourceList) *corev1.Node {
	labels := n.Labels
	if name != n.Name {
		labels = maps.Clone(n.Labels)
		labels[corev1.LabelHostname] = name
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.Taints},
		Status:     corev1.NodeStatus{Allocatable: allocatable, Capacity: allocatable},
	}
}

// csiNode has the drivers that limit the volumes of the node.
func csiNode(n *propertytest.ClusterNode) *storagev1.CSINode {
	limits := map[string]int32{}
	switch {
	case n.Existing != nil:
		limits = n.Existing.VolumeLimits
	case n.Type != nil:
		for driver, limit := range n.Type.VolumeLimits {
			limits[driver] = int32(limit)
		}
	}
	out := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	for _, driver := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[driver]
		out.Spec.Drivers = append(out.Spec.Drivers, storagev1.CSINodeDriver{
			Name: driver, NodeID: n.Name, Allocatable: &storagev1.VolumeNodeResources{Count: &limit},
		})
	}
	return out
}
