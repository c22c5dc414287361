package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Plan is the answer to a Snapshot. Each launch is final and independent of the others.
type Plan struct {
	Placements []Placement
	Launches   []Launch
	Rejected   []Rejection
	Stats      Stats
	// Barren are pools that can launch nothing, whatever is asked of them, each with its Reason.
	Barren []Reason
	// Ignored are terms of pods' node affinity that no node can match, in the order of pods' namespaces and names.
	Ignored []IgnoredTerms
	// Abandoned is true when Budget.Stop ended planning. The plan then holds nothing, and must not be carried out.
	Abandoned bool
	// Zones counts the pods in phase Pending by the zone that they are bound to, or FlexibleZone or NoZone.
	Zones map[string]int
}

// Placement puts pods on a node of the snapshot.
type Placement struct {
	// Node is the Name of the snapshot's Node, Claim its claim if it has one.
	Node, Claim string
	Pods        []*corev1.Pod
	// Devices are what those of Pods have that have resource claims, but for pods that keep their place without.
	Devices []DeviceUse
}

// DeviceUse is devices for a pod.
type DeviceUse struct {
	Pod    *corev1.Pod
	Claims []snapshot.DeviceClaim
	// Grants are alternatives on a new node, by the types that it may become, and one on others.
	Grants []snapshot.DeviceGrant
}

// Launch is a NodeClaim to create.
type Launch struct {
	Pool *karpv1.NodePool
	// Requirements that every node of the claim satisfies, minValues included. ClaimRequirements spells them
	// for the API.
	Requirements requirement.Set
	// InstanceTypes that hold all Pods, cheapest first.
	InstanceTypes []*catalog.InstanceType
	// Offering is the cheapest available one of InstanceTypes[0].
	Offering catalog.Offering
	// Requests is the sum over Pods plus the daemon pods that come with the node.
	Requests corev1.ResourceList
	// Pods that the claim is bought for, in order of placement.
	Pods []*corev1.Pod
	// Drivers are those of DRA that must publish the devices of a node before it is ready for Pods, sorted.
	Drivers []string
	// Devices are what those of Pods have that have resource claims.
	Devices []DeviceUse
	// MinValuesRelaxed is true when a minValues of the pool was lowered (BestEffort).
	MinValuesRelaxed bool
}

// IgnoredTerms are what a pod asks for that was left out of the plan: terms with keys or values that no label can have.
type IgnoredTerms struct {
	Pod *corev1.Pod
	// Why names each term, and what is wrong with it. Never empty.
	Why []string
}

// Rejection is a pod without a home.
type Rejection struct {
	Pod *corev1.Pod
	// Reasons say why not: of each pool all that would have to change, or of the pod what no pool can change. Never empty.
	Reasons []Reason
}

// Deferred tells that the pod waits for nodes on their way to show which reservations they leave to others: the next
// plan will tell. There is nothing to be done about it until then.
func (r *Rejection) Deferred() bool {
	return slices.ContainsFunc(r.Reasons, func(why Reason) bool { return why.Code == Reserved })
}

// Ignored tells whether the pod was not considered at all, for what it says itself or for its volumes.
func (r *Rejection) Ignored() bool {
	return slices.ContainsFunc(r.Reasons, func(why Reason) bool {
		return why.NodePool == "" && slices.Contains([]Code{InvalidPod, NotManaged, Volume, VolumePending, VolumeInUse, Unsupported}, why.Code)
	})
}

// Reason is one cause, as data. Code is stable; Message is for people.
type Reason struct {
	Code     Code   `json:"code"`
	NodePool string `json:"nodePool,omitempty"`
	Message  string `json:"message"`
	// Nearest is where the pod would go if not for the reasons of this pool; nil if nowhere.
	Nearest *Nearest `json:"-"`
}

// Code names a rule of the scheduler.
type Code string

// The rules that can keep a pod off a node.
const (
	NoPools       Code = "NoNodePools"
	NotManaged    Code = "OptedOut"
	InvalidPod    Code = "InvalidPod"
	Requirement   Code = "Requirements"
	Taint         Code = "Taints"
	Resources     Code = "Resources"
	Offering      Code = "NoOffering"
	Limits        Code = "Limits"
	MinValues     Code = "MinValues"
	HostPort      Code = "HostPort"
	Topology      Code = "Topology"
	Volume        Code = "Volume"
	VolumePending Code = "VolumeUnbound"
	Unsupported   Code = "Unsupported"
	// VolumeInUse: another pod uses a volume claim that only one pod can use.
	VolumeInUse Code = "VolumeInUse"
	// TooComplex: the pod has so many terms that planning it would hold up others.
	TooComplex Code = "TooComplex"
	// BudgetSpent: the steps of the plan were spent before the pod's turn.
	BudgetSpent Code = "BudgetSpent"
	// DeviceClaims: the pod asks for devices by dynamic resource allocation, which is ignored, or has to wait for its claims.
	DeviceClaims Code = "ResourceClaims"
	// Devices: there are none left for the pod's resource claims.
	Devices Code = "Devices"
	// Reserved: only capacity reservations would do, and nodes on their way take what they have left.
	Reserved Code = "ReservedCapacity"
)

// Stats tells what the plan cost to make and what it costs to run.
type Stats struct {
	Pods          int `json:"pods"`
	Classes       int `json:"classes"`
	InstanceTypes int `json:"instanceTypes"`
	Steps         int `json:"steps"`
	// HourlyCost is the price of the new nodes, NodeCost what they cost besides (snapshot.Settings.NodeCost for each).
	HourlyCost float64 `json:"hourlyCost"`
	NodeCost   float64 `json:"nodeCost,omitempty"`
	// LowerBound is what no plan for the pods that were placed can cost less than, in $/h, both kinds of cost together;
	// zero if the budget left it out.
	LowerBound float64 `json:"lowerBound"`
}
