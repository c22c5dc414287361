package rejection

import "encoding/json"

// Rule describes what a reason is about, as data. At most one field is set, by Code; without any, the Code is all that there is to know.
// Package wording turns it into a sentence.
type Rule struct {
	// Labels: no node has the labels that are required. Contradiction: nothing can have them.
	Labels        *Labels        `json:"labels,omitempty"`
	Contradiction *Contradiction `json:"contradiction,omitempty"`
	// Taints are the taints that the pod does not tolerate.
	Taints []UntoleratedTaint `json:"taints,omitempty"`
	// Sizes: the requests are too large. Limits are the pool's that leave too little.
	Sizes  *Sizes  `json:"sizes,omitempty"`
	Limits []Limit `json:"limits,omitempty"`
	// MinValues are the labels of which too few values are left.
	MinValues []MinValue `json:"minValues,omitempty"`
	// Offerings: what fits cannot be launched now.
	Offerings *Offerings `json:"offerings,omitempty"`
	// Domains: spread or affinity leaves none.
	Domains *Domains `json:"domains,omitempty"`
	// Ports are host ports of the pod that a DaemonSet takes on each node.
	Ports []string `json:"ports,omitempty"`
	// VolumeClaim and ResourceClaims are those that the pod cannot use.
	VolumeClaim    *VolumeClaim    `json:"volumeClaim,omitempty"`
	ResourceClaims *ResourceClaims `json:"resourceClaims,omitempty"`
	// Missing holds what no node of the pool has of what the pod needs beside labels, taints and room.
	Missing *Missing `json:"missing,omitempty"`
	// PodGroup: the pods of its group get nodes together or not at all.
	PodGroup *GroupOfPods `json:"podGroup,omitempty"`
	// Bound: the pod exceeds a bound of planning.
	Bound *Bound `json:"bound,omitempty"`
	// Node is the only node that fits, which is not initialized.
	Node *Node `json:"node,omitempty"`
	// Stated holds what another component states, verbatim: an error, or the sentence of a controller that leaves the pod out of a plan.
	Stated string `json:"stated,omitempty"`
}

// String is the JSON of the rule: for tests, and for those who debug. Package wording has the sentence.
func (r *Rule) String() string {
	data, err := json.Marshal(r)
	if err != nil {
		return err.Error() // not reached: a rule holds strings, numbers and lists
	}
	return string(data)
}

// UntoleratedTaint is a taint of the nodes of a pool.
type UntoleratedTaint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// Limit is a limit of a pool that leaves less than the smallest suitable type adds. All amounts are quantities in the notation of
// Kubernetes.
type Limit struct {
	Resource string `json:"resource"`
	Limit    string `json:"limit"`
	Used     string `json:"used"`
	// Planned holds what the plan has taken of it; empty if nothing.
	Planned string `json:"planned,omitempty"`
	Left    string `json:"left"`
	// InstanceType is the smallest suitable type, which adds Adds.
	InstanceType string `json:"instanceType"`
	Adds         string `json:"adds"`
}

// MinValue is a label with minValues that the instance types left do not reach.
type MinValue struct {
	Key string `json:"key"`
	// Values counts how many there are, Wanted how many there have to be.
	Values int `json:"values"`
	Wanted int `json:"wanted"`
}

// Offerings states why what fits cannot be launched now.
type Offerings struct {
	// Types counts how many instance types fit. Only names it if it is one.
	Types int    `json:"types"`
	Only  string `json:"only,omitempty"`
	// Unpriced: no price is known of any of them.
	Unpriced bool `json:"unpriced,omitempty"`
	// CapacityTypes and Zones are those to which pod and pool are restricted; empty if they are not.
	CapacityTypes []string `json:"capacityTypes,omitempty"`
	Zones         []string `json:"zones,omitempty"`
}

// ResourceClaims states why no node has devices for the resource claims of the pod.
type ResourceClaims struct {
	Cause DeviceCause `json:"cause"`
	// Names are the resource claims of the pod.
	Names []string `json:"names,omitempty"`
	// Error is the allocator's, for NotAllocated and NoDevicesKnown.
	Error string `json:"error,omitempty"`
}

// DeviceCause states why devices cannot be used.
type DeviceCause string

// The causes. NoDevicesKnown is NotAllocated in a pool without known devices of its instance types.
const (
	NoTypeHasDevices DeviceCause = "NoTypeHasDevices"
	NotAllocated     DeviceCause = "NotAllocated"
	NoDevicesKnown   DeviceCause = "NoDevicesKnown"
	NotUsableInPool  DeviceCause = "NotUsableInPool"
)

// Missing is a feature of the kubelet, or a CSI driver; one of them is set.
type Missing struct {
	Feature string `json:"feature,omitempty"`
	Driver  string `json:"driver,omitempty"`
	// DaemonSet, if it is known, is NAMESPACE/NAME of the one that installs the driver elsewhere; Why is why its pods do not run on nodes of
	// the pool.
	DaemonSet string `json:"daemonSet,omitempty"`
	Why       string `json:"why,omitempty"`
}

// Bound is a bound of planning that a pod exceeds.
type Bound struct {
	Of BoundOf `json:"of"`
	// Count counts how many the pod has, Most how many are planned; both 0 for bounds that are not the pod's alone.
	Count int `json:"count,omitempty"`
	Most  int `json:"most,omitempty"`
}

// BoundOf names a bound.
type BoundOf string

// The bounds.
const (
	HardSpreads      BoundOf = "TopologySpreadConstraints"
	RequiredPods     BoundOf = "RequiredPodAffinityTerms"
	AntiAffinity     BoundOf = "RequiredPodAntiAffinityKeys"
	RequiredNodes    BoundOf = "RequiredNodeAffinityTerms" // the first Most are considered
	ManyTerms        BoundOf = "TermsOfAllPods"            // Most terms of all pods that have more than Count each
	VolumeTopology   BoundOf = "VolumeTopologies"
	StepsOfPlan      BoundOf = "StepsOfPlan"
	StepsOfManyTerms BoundOf = "ShareOfSteps" // of pods with very many terms
)

// Node is a node that is not initialized.
type Node struct {
	NodeClaim string `json:"nodeClaim"`
	Name      string `json:"name"`
}
