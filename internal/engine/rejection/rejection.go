// Package rejection has the reasons why a pod cannot be scheduled, as data. Each part of the engine that can keep a pod
// off a node states its own.
package rejection

// Reason is one cause, as data. Package wording turns it into a sentence.
type Reason struct {
	Code     Code
	NodePool string
	// Rule holds what the reason is about; nil if the Code is all that there is to know. It must not be changed.
	Rule *Rule
	// Nearest states where the pod would go without the reasons of this pool; nil if nowhere.
	Nearest *Nearest
	// Together counts how many reasons keep the pod from Nearest. It is set at the last of them.
	Together int
}

// Mismatched are the NodePools, among those that reasons of one pod name, with requirements that the pod does not match. Most pools are not
// for a pod, and their other reasons are not what its owner has to look at.
func Mismatched(reasons []Reason) map[string]bool {
	out := map[string]bool{}
	for i := range reasons {
		out[reasons[i].NodePool] = out[reasons[i].NodePool] || reasons[i].Code == Requirement
	}
	return out
}

// Nearest states where a pod would be scheduled if the reasons of its pool did not exist.
type Nearest struct {
	InstanceType, Zone, CapacityType string
}

// String is for people.
func (n *Nearest) String() string {
	if n.Zone == "" {
		return n.InstanceType
	}
	return n.InstanceType + " in " + n.Zone
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
	// TooComplex: the pod has so many terms that planning it would delay others.
	TooComplex Code = "TooComplex"
	// BudgetSpent: the plan ran out of steps before the pod's turn.
	BudgetSpent Code = "BudgetSpent"
	// DeviceClaims: the pod has DRA resource claims, which are not planned, or which are not ready.
	DeviceClaims Code = "ResourceClaims"
	// Devices: no devices are left for the pod's resource claims.
	Devices Code = "Devices"
	// Reserved: only capacity reservations fit, and in-flight nodes take what is left of them.
	Reserved Code = "ReservedCapacity"
	// PodGroup: kube-scheduler does not try the pods of the pod's PodGroup, or too few of them fit.
	PodGroup Code = "PodGroup"
)
