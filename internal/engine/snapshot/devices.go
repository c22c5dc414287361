package snapshot

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Devices answers queries of dynamic resource allocation: which claims pods have, and which devices could be
// allocated for them. Equal queries have equal answers.
type Devices interface {
	// Claims finds the ResourceClaims that the pod uses. The error is for users: what the pod must wait for.
	Claims(pod *corev1.Pod) ([]DeviceClaim, error)
	// Free is the state of devices after these pods have left their nodes. A claim that no other pod uses can be
	// allocated anew.
	Free(leaving map[types.UID]bool) DeviceState
	// Labels are the keys of node labels that decide which devices can be used from a node, sorted.
	Labels() []string
	// ExtendedResources returns those that devices serve on some node, existing or planned, sorted.
	ExtendedResources() []corev1.ResourceName
	// UsableOn selects the nodes that can use a device, by the slice that publishes it; nil is all nodes. False if no slice does.
	UsableOn(d *resourcev1.DeviceRequestAllocationResult) (*corev1.NodeSelector, bool)
}

// ExpectedPool is the prefix of the names of device pools that come with nodes, until these are published. No
// published pool can have such a name. After the prefix follow the node, the instance type and the pool, each after a slash.
const ExpectedPool = "~"

// DeviceClaim is a ResourceClaim that a pod uses.
type DeviceClaim struct {
	Name string
	UID  types.UID
	// Own is true if it was created for this pod: no other uses it.
	Own bool
	// Extended is the pod with requests that of extended resources the claim stands for; nil for others. kube-scheduler makes it once it has
	// found a node, for those that devices serve there. Where they serve none, there is none.
	Extended *corev1.Pod
}

// DeviceNode is a node, existing or planned.
type DeviceNode struct {
	// Node is a unique name.
	Node string
	// Labels hold at least the known values of the keys that Devices.Labels lists.
	Labels map[string]string
	// Type is the node's instance type, while the devices that come with it are not published; nil once they are.
	Type *catalog.InstanceType
	// DRAResources are the extended resources that devices serve on the node, while Type is nil; else those of Type count.
	DRAResources []corev1.ResourceName
	// DeclaredFeatures are the features of its kubelet, as far as they are known: some devices need one.
	DeclaredFeatures []string
}

// Serves are the extended resources that devices serve on the node, sorted.
func (n *DeviceNode) Serves() []corev1.ResourceName {
	if n.Type != nil {
		return n.Type.DRAResources
	}
	return n.DRAResources
}

// DeviceState is which devices are allocated. It is immutable: With returns another.
type DeviceState interface {
	// Find finds devices for the claims on a node. The error is for users: why there are none.
	Find(claims []DeviceClaim, at DeviceNode) (DeviceAllocation, error)
	// With allocates the devices that were found for the claims. Grants are alternatives for one node with a type
	// that is not known yet: of each the node's own devices are allocated, the others once.
	With(claims []DeviceClaim, grants ...DeviceAllocation) DeviceState
}

// DeviceAllocation is an allocation of devices for claims.
type DeviceAllocation struct {
	// Reach holds what a node must match to use those of the devices that are outside of it. All of it must hold.
	Reach []corev1.NodeSelectorRequirement
	// Outside identifies these devices and their Reach: grants with the same Outside differ only in the devices that
	// come with the node.
	Outside string
	// Drivers are the drivers of devices that come with the node, sorted; empty if there are none.
	Drivers []string
	// Results are the allocations by claim, in their order; nil for claims that were allocated before.
	Results []*resourcev1.AllocationResult
}

// WantsDevices reports whether a pod has a resource claim, or requests an extended resource that devices serve on some node.
func (s *Snapshot) WantsDevices(pod *corev1.Pod) bool {
	if WantsDevices(&pod.Spec) {
		return true
	}
	if s.Devices == nil || len(s.Devices.ExtendedResources()) == 0 {
		return false
	}
	requests := Requests(pod)
	return slices.ContainsFunc(s.Devices.ExtendedResources(), func(name corev1.ResourceName) bool {
		q := requests[name]
		return !q.IsZero()
	})
}

// WantsDevices reports whether a pod requests devices by dynamic resource allocation (DRA). While the snapshot has no
// information about devices, such a pod is not planned, and such a daemon is not expected on new nodes.
func WantsDevices(spec *corev1.PodSpec) bool {
	claims := func(c corev1.Container) bool { return len(c.Resources.Claims) > 0 }
	return len(spec.ResourceClaims) > 0 || slices.ContainsFunc(spec.Containers, claims) || slices.ContainsFunc(spec.InitContainers, claims)
}
