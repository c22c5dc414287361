package volume

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// axisPrefix is the prefix of Kubernetes' resource names for attachable volumes.
const axisPrefix = corev1.ResourceAttachableVolumesPrefix + "csi-"

// unlimited is the room for volumes on nodes without a known limit: more than any node can attach.
const unlimited = 1 << 20

// Limits are the attach limits of a snapshot. Attachable volumes are an axis per CSI driver that has a known limit on some
// instance type. A pod requests one unit per volume of its own. Volumes that several pods share are counted where the pods
// are.
type Limits struct {
	s     *snapshot.Snapshot
	index *Index
	// uses counts how many pods use each claim.
	uses map[types.NamespacedName]int
	// axes are the names of the axes, by CSI driver.
	axes map[string]corev1.ResourceName
	// storage are the names of the axes of storage on nodes, by storage class.
	storage map[string]corev1.ResourceName
}

// NewLimits finds the drivers that pods have volumes of and that some type limits. Pending pods are those that are being
// placed, wherever they run.
func NewLimits(s *snapshot.Snapshot, pending map[types.UID]bool) *Limits {
	l := &Limits{s: s, index: NewIndex(s), uses: map[types.NamespacedName]int{}, axes: map[string]corev1.ResourceName{}}
	l.storage = map[string]corev1.ResourceName{}
	wanted := map[string]bool{}
	note := func(pod *corev1.Pod) {
		for _, a := range l.attachments(pod) {
			l.uses[a.Claim]++
			wanted[a.Driver] = true
		}
	}
	for _, pod := range s.Pods {
		note(pod)
		l.wantStorage(pod)
	}
	for i := range s.Nodes {
		for _, pod := range s.Nodes[i].Pods {
			if !pending[pod.UID] && !snapshot.Terminal(pod) {
				note(pod)
			}
		}
	}
	for i := range s.Pools {
		for _, it := range s.Pools[i].InstanceTypes {
			for driver := range it.VolumeLimits {
				if wanted[driver] {
					l.axes[driver] = corev1.ResourceName(axisPrefix + driver)
				}
			}
		}
	}
	return l
}

// Index is that of the snapshot.
func (l *Limits) Index() *Index { return l.index }

func (l *Limits) attachments(pod *corev1.Pod) []Attachment {
	return AttachmentsOf(l.s, pod)
}

// Axes are the axes, as a list without amounts.
func (l *Limits) Axes() corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, names := range []map[string]corev1.ResourceName{l.axes, l.storage} {
		for _, name := range names {
			out[name] = resource.Quantity{}
		}
	}
	return out
}

// Forget removes a pod that will never run from the users of its claims: a pod that shares a claim with it alone is not
// bound by it.
func (l *Limits) Forget(pod *corev1.Pod) {
	for _, a := range l.attachments(pod) {
		l.uses[a.Claim]--
	}
}

// Shared reports whether several pods use the claim.
func (l *Limits) Shared(claim types.NamespacedName) bool { return l.uses[claim] > 1 }

// AddTo adds the pod's own volumes to its requests, and returns those that other pods use too.
func (l *Limits) AddTo(requests resources.Vec, axes resources.Axes, pod *corev1.Pod) (shared []Attachment) {
	l.addStorage(requests, axes, pod)
	if len(l.axes) == 0 {
		return nil
	}
	seen := map[Attachment]bool{}
	for _, a := range l.attachments(pod) {
		name, limited := l.axes[a.Driver]
		if !limited || seen[a] {
			continue
		}
		seen[a] = true
		if l.Shared(a.Claim) {
			shared = append(shared, a)
			continue
		}
		requests[axes.IndexOf(name)]++
	}
	return shared
}

// Axis is the axis of the driver, which must have a limit.
func (l *Limits) Axis(axes resources.Axes, driver string) int { return axes.IndexOf(l.axes[driver]) }

// LimitType writes the attach limits of a type into the room of its nodes, less what their daemons attach, by driver.
func (l *Limits) LimitType(room resources.Vec, axes resources.Axes, limits, attached map[string]int) {
	for driver, name := range l.axes {
		limit, known := limits[driver]
		if !known {
			limit = unlimited
		}
		room[axes.IndexOf(name)] = int64(max(0, limit-attached[driver]))
	}
}

// LimitNode writes what a node can still attach into its room.
func (l *Limits) LimitNode(room resources.Vec, axes resources.Axes, on *Attached) {
	for driver, name := range l.axes {
		room[axes.IndexOf(name)] = on.left(driver)
	}
}

// OfNode are the attach limits of an existing node, less the volumes that no pod there uses. Until the node has a CSINode object, the
// limits are those of its type.
func (l *Limits) OfNode(n *snapshot.Node) map[string]int32 {
	limits := l.reported(n)
	if len(n.LeftoverVolumes) == 0 {
		return limits
	}
	out := maps.Clone(limits)
	for driver := range out {
		out[driver] -= n.LeftoverVolumes[driver]
	}
	return out
}

// reported are the limits that the node or its type has.
func (l *Limits) reported(n *snapshot.Node) map[string]int32 {
	if n.Initialized || n.Claim == "" {
		return n.VolumeLimits
	}
	for i := range l.s.Pools {
		if l.s.Pools[i].NodePool.Name != n.Pool {
			continue
		}
		for _, it := range l.s.Pools[i].InstanceTypes {
			if it.Name != n.Labels[corev1.LabelInstanceTypeStable] || len(it.VolumeLimits) == 0 {
				continue
			}
			out := map[string]int32{}
			for driver, limit := range it.VolumeLimits {
				out[driver] = int32(limit)
			}
			maps.Copy(out, n.VolumeLimits)
			return out
		}
	}
	return n.VolumeLimits
}
