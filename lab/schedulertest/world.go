package schedulertest

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	drivers := maps.Clone(s.Volumes.ChecksCapacity)
	if drivers == nil {
		drivers = map[string]bool{}
	}
	maps.Copy(drivers, s.Volumes.MustBeInstalled)
	for name := range drivers {
		must, checks := s.Volumes.MustBeInstalled[name], s.Volumes.ChecksCapacity[name]
		objects["CSIDriver"] = append(objects["CSIDriver"], &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: &must, StorageCapacity: &checks},
		})
	}
	for _, list := range s.Volumes.Capacities {
		for _, c := range list {
			objects["CSIStorageCapacity"] = append(objects["CSIStorageCapacity"], c)
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for driver, count := range n.LeftoverVolumes {
			for k := range count {
				name := fmt.Sprintf("left-%s-%d", n.Name, k)
				objects["PersistentVolume"] = append(objects["PersistentVolume"], &corev1.PersistentVolume{
					ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
						CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name},
					}},
				})
				objects["VolumeAttachment"] = append(objects["VolumeAttachment"], &storagev1.VolumeAttachment{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: storagev1.VolumeAttachmentSpec{
						Attacher: driver, NodeName: n.Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
					},
				})
			}
		}
	}
	return NewScheduler(objects, s.Settings.Profiles[corev1.DefaultSchedulerName])
}

// OfWorld is the Filter with which propertytest carries plans out.
func (s *Scheduler) OfWorld(c *propertytest.Cluster, pod *corev1.Pod, node *propertytest.ClusterNode) string {
	if err := s.see(c, node); err != nil {
		return err.Error()
	}
	if a, has := c.Devices.(*allocated); has {
		pod = a.withClaims(pod)
	}
	return s.Filter(pod, node.Name)
}

// see has the calls of Filter that follow see the cluster, unless they do.
func (s *Scheduler) see(c *propertytest.Cluster, node *propertytest.ClusterNode) error {
	now := stateOf(c, node)
	if now == s.state {
		return nil
	}
	s.state = now
	return s.show(c, node)
}

// state identifies what a cluster holds: its pods only become more.
type state struct {
	cluster *propertytest.Cluster
	pods    int
	// like is the node that the empty host is like; nil if there is none.
	like *propertytest.ClusterNode
}

func stateOf(c *propertytest.Cluster, node *propertytest.ClusterNode) state {
	out := state{cluster: c}
	for _, n := range c.Nodes {
		out.pods += len(n.Pods)
	}
	if c.EmptyHost {
		out.like = node
	}
	return out
}

// show has the calls of Filter that follow see the cluster.
func (s *Scheduler) show(c *propertytest.Cluster, node *propertytest.ClusterNode) error {
	like := node
	if !c.EmptyHost {
		like = nil
	}
	nominated, err := s.snapshot.show(c, like)
	if err != nil {
		return err
	}
	if a, has := c.Devices.(*allocated); has {
		if err := s.devices.show(s.ctx, a.withMade(c), a.published(c), a.world); err != nil {
			return err
		}
	}
	return s.Nominate(nominated)
}

func nodeObject(n *propertytest.ClusterNode, name string, allocatable corev1.ResourceList) *corev1.Node {
	labels := maps.Clone(n.Labels)
	if n.Existing == nil || !n.Existing.Initialized { // kubelet and the cloud controller manager set both names of a label
		for key, earlier := range propertytest.EarlierNames {
			if value, has := labels[key]; has {
				labels[earlier] = value
			}
		}
	}
	if name != n.Name {
		labels[corev1.LabelHostname] = name
	}
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.Taints},
		Status:     corev1.NodeStatus{Allocatable: allocatable, Capacity: allocatable},
	}
	switch {
	case n.Existing != nil:
		out.Status.DeclaredFeatures = n.Existing.DeclaredFeatures
	case n.Pool != nil:
		out.Status.DeclaredFeatures = n.Pool.KubeletFeatures
	}
	return out
}

// csiNode has the drivers on the node.
func csiNode(s *snapshot.Snapshot, n *propertytest.ClusterNode) *storagev1.CSINode {
	limits, drivers := map[string]int32{}, map[string]bool{}
	for _, driver := range n.CSIDrivers(s) {
		drivers[driver] = true
	}
	if n.Existing != nil {
		maps.Copy(limits, n.Existing.VolumeLimits)
	} else {
		for driver, limit := range n.Type.VolumeLimits {
			limits[driver] = int32(limit)
		}
	}
	out := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	for driver := range limits {
		if !s.Volumes.MustBeInstalled[driver] {
			drivers[driver] = true
		}
	}
	for _, driver := range slices.Sorted(maps.Keys(drivers)) {
		entry := storagev1.CSINodeDriver{Name: driver, NodeID: n.Name}
		if limit, limited := limits[driver]; limited {
			entry.Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
		}
		out.Spec.Drivers = append(out.Spec.Drivers, entry)
	}
	return out
}
