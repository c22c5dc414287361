package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Devices answers for dynamic resource allocation: which claims pods have, and where their devices could come from. Equal
// questions have equal answers.
type Devices interface {
	// Claims finds the ResourceClaims that the pod uses. The error is for people: what the pod must wait for.
	Claims(pod *corev1.Pod) ([]DeviceClaim, error)
	// Open is what is free once these pods have left the places where they are, if they have any. A claim that nobody
	// else uses can be allocated anew.
	Open(leaving map[types.UID]bool) DeviceBook
	// Labels are the keys of node labels that decide which devices can be used from a node, sorted.
	Labels() []string
}

// ExpectedPool begins the names of pools of devices that come with nodes, while these are not published. No published
// one can have such a name.
const ExpectedPool = "~"

// DeviceClaim is a ResourceClaim that a pod uses.
type DeviceClaim struct {
	Name string
	UID  types.UID
	// Own tells that it was made for this pod: no other uses it.
	Own bool
}

// DeviceSite is a node, or what one will be like.
type DeviceSite struct {
	// Node is a name that no other node has.
	Node string
	// Labels hold at least what is known of the keys that Devices names.
	Labels map[string]string
	// Type is what the node is bought as, while the devices that come with it are not published; nil once they are.
	Type *catalog.InstanceType
}

// DeviceBook knows which devices are taken. It never changes: With makes another.
type DeviceBook interface {
	// Find finds devices for the claims on a node. The error is for people: why there are none.
	Find(claims []DeviceClaim, at DeviceSite) (DeviceGrant, error)
	// With takes the devices that were found for the claims. Grants are alternatives of one node whose type is not
	// known yet: of each the node's own devices are taken, the others once.
	With(claims []DeviceClaim, grants ...DeviceGrant) DeviceBook
}

// DeviceGrant is devices for claims.
type DeviceGrant struct {
	// Reach is what a node must be like for the devices outside of it to be used there. All of it must hold.
	Reach []corev1.NodeSelectorRequirement
	// Outside spells these devices and their Reach: grants with the same Outside differ only in what comes with the node.
	Outside string
	// Drivers are those of devices that come with the node, sorted; empty if there are none of these.
	Drivers []string
	// Results say it by claim, in their order; nil for those that had their devices before.
	Results []*resourcev1.AllocationResult
}
