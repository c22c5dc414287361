package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// storageAxis is the prefix of the names of axes for the storage of nodes, in bytes, by storage class.
const storageAxis = "storageclass.storage.k8s.io/"

// measured reports whether kube-scheduler compares the size of the volume with CSIStorageCapacity objects: a provisioner is still to make
// it, and its driver publishes them.
func (v Volume) measured(s *snapshot.Snapshot) bool {
	return v.claim != nil && v.claim.Spec.VolumeName == "" && v.class != nil && v.claim.Annotations[selectedNode] == "" &&
		s.Volumes.ChecksCapacity[v.class.Provisioner]
}

// onNode reports whether a measured volume is made of the disks of its node.
func (v Volume) onNode(s *snapshot.Snapshot) bool {
	return v.measured(s) && s.Volumes.NodeLocal[v.class.Provisioner]
}

// size returns how many bytes the claim requests for.
func (v Volume) size() resource.Quantity {
	return v.claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// largest is the size of the largest volume of which the object states that it can be made.
func largest(c *storagev1.CSIStorageCapacity) resource.Quantity {
	switch {
	case c.MaximumVolumeSize != nil:
		return *c.MaximumVolumeSize
	case c.Capacity != nil:
		return *c.Capacity
	}
	return resource.Quantity{}
}

// ofCapacity are the topologies where there is storage for a volume that is measured and not made of disks of its node. An object without
// a topology is about no node, as for kube-scheduler.
func (v Volume) ofCapacity(s *snapshot.Snapshot) (out []requirement.Set, anywhere bool) {
	size := v.size()
	for _, c := range s.Volumes.Capacities[v.class.Name] {
		if most := largest(c); c.NodeTopology == nil || most.Cmp(size) < 0 {
			continue
		}
		set, err := ofSelector(s.Labels, c.NodeTopology)
		if err != nil {
			continue // it selects no node
		}
		if len(c.NodeTopology.MatchLabels)+len(c.NodeTopology.MatchExpressions) == 0 {
			return nil, true
		}
		out = append(out, set)
	}
	return out, false
}

// ofSelector parses a selector of nodes by their labels.
func ofSelector(l requirement.Labels, selector *metav1.LabelSelector) (requirement.Set, error) {
	var exprs []corev1.NodeSelectorRequirement
	for key, value := range selector.MatchLabels {
		exprs = append(exprs, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	for _, e := range selector.MatchExpressions {
		exprs = append(exprs, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
	}
	return l.FromExpressions(exprs)
}

// blockedByCapacity is the reason why there is storage for the volume nowhere; the zero Reason if there may be.
func (v Volume) blockedByCapacity(s *snapshot.Snapshot) rejection.Reason {
	if !v.measured(s) || v.onNode(s) {
		return rejection.Reason{}
	}
	if sets, anywhere := v.ofCapacity(s); anywhere || len(sets) > 0 {
		return rejection.Reason{}
	}
	for _, c := range s.Volumes.Capacities[v.class.Name] {
		if c.NodeTopology == nil {
			return v.reason(rejection.Volume, rejection.VolumeClaim{
				Cause: rejection.NoStorage, Class: v.class.Name, Provisioner: v.class.Provisioner,
				Error: fmt.Sprintf("CSIStorageCapacity %s/%s has no nodeTopology, so that it counts for no node", c.Namespace, c.Name),
			})
		}
	}
	return v.reason(rejection.Volume, rejection.VolumeClaim{Cause: rejection.NoStorage, Class: v.class.Name, Provisioner: v.class.Provisioner})
}

// wantStorage adds the axis of each class of the pod's volumes that are made of disks of nodes.
func (l *Limits) wantStorage(pod *corev1.Pod) {
	if len(l.s.Volumes.ChecksCapacity) == 0 || !HasClaims(pod) {
		return
	}
	for _, v := range Of(l.s, pod) {
		if v.onNode(l.s) {
			l.storage[v.class.Name] = corev1.ResourceName(storageAxis + v.class.Name)
		}
	}
}

// addStorage adds the sizes of the pod's volumes that are made of disks of its node. kube-scheduler compares each of them alone; two that
// only fit one by one would be bound to one node, and the second cannot be made there.
func (l *Limits) addStorage(requests resources.Vec, axes resources.Axes, pod *corev1.Pod) {
	if len(l.storage) == 0 || !HasClaims(pod) {
		return
	}
	for _, v := range Of(l.s, pod) {
		if v.onNode(l.s) {
			axis := axes.IndexOf(l.storage[v.class.Name])
			requests[axis] = quantity.Add(requests[axis], quantity.Of(corev1.ResourceStorage, v.size()))
		}
	}
}

// StoreOnType writes the storage that a new node of the type has into its room.
func (l *Limits) StoreOnType(room resources.Vec, axes resources.Axes, it *catalog.InstanceType) {
	for _, name := range l.storage {
		room[axes.IndexOf(name)] = it.LocalStorage
	}
}

// StoreOnNode writes the storage that is left on an existing node into its room. That of a node that is not initialized is not published
// yet; it will have what its type has.
func (l *Limits) StoreOnNode(room resources.Vec, axes resources.Axes, n *snapshot.Node) {
	for class, name := range l.storage {
		axis := axes.IndexOf(name)
		if room[axis] = l.published(class, n); n.Initialized || n.Claim == "" {
			continue
		}
		if it := l.typeOf(n); it != nil {
			room[axis] = max(room[axis], it.LocalStorage)
		}
	}
}

// published is the size of the largest volume of the class that can be made on the node now, in bytes.
func (l *Limits) published(class string, n *snapshot.Node) (most int64) {
	for _, c := range l.s.Volumes.Capacities[class] {
		if c.NodeTopology == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
		if err == nil && selector.Matches(labels.Set(n.Labels)) {
			most = max(most, quantity.Of(corev1.ResourceStorage, largest(c)))
		}
	}
	return most
}

// typeOf is the instance type of a node in flight; nil if its pool does not have it.
func (l *Limits) typeOf(n *snapshot.Node) *catalog.InstanceType {
	for i := range l.s.Pools {
		if l.s.Pools[i].NodePool.Name != n.Pool {
			continue
		}
		for _, it := range l.s.Pools[i].InstanceTypes {
			if it.Name == n.Labels[corev1.LabelInstanceTypeStable] {
				return it
			}
		}
	}
	return nil
}
