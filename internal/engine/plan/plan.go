// Package plan is the result of planning, as data: which pods go where, which NodeClaims to create, and why each remaining
// pod cannot be scheduled. It computes nothing but views of this data.
package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Plan is the result for a Snapshot. Each launch is final and independent of the others.
type Plan struct {
	Placements []Placement
	Launches   []Launch
	Rejected   []Rejection
	Stats      Stats
	// Preferences holds what pods prefer, under the policy Priced, in the order of the queue. Pods of one workload are
	// together, unless their constraints differ. Pods with very many terms are left out.
	Preferences []PreferenceCost
	// DroppedWorth holds what the plan must save by dropping preferences, in $/h, to count under the policy Priced.
	DroppedWorth float64
	// UnusablePools are pools that can launch nothing, whatever pods require, each with its Reason.
	UnusablePools []rejection.Reason
	// Ignored are terms of node affinity that no node can match, ordered by the pods' namespaces and names.
	Ignored []IgnoredTerms
	// Costly are the namespaces with pods of very many terms that get no node, by name.
	Costly []Costly
	// Abandoned is true when the caller finished planning. The plan is then empty and must not be carried out.
	Abandoned bool
	// Zones counts the pods in phase Pending by the zone that they are bound to, or under podclass.FlexibleZone or NoZone.
	Zones map[string]int
}

// Placement schedules pods onto a node of the snapshot.
type Placement struct {
	// Node is the Name of the snapshot's Node, Claim its NodeClaim if it has one.
	Node, Claim string
	Pods        []*corev1.Pod
	// Devices are the devices of the Pods with resource claims. A pod that keeps its node without devices has no entry.
	Devices []DeviceUse
}

// DeviceUse is the devices of a pod.
type DeviceUse struct {
	Pod    *corev1.Pod
	Claims []snapshot.DeviceClaim
	// Grants has one entry on an existing node; on a new node it has one per instance type that the node may become.
	Grants []snapshot.DeviceAllocation
}

// Launch is a NodeClaim to create.
type Launch struct {
	// ID identifies the decision in logs, events and recordings. The caller that decides sets it; the engine does not read it.
	ID   string
	Pool *karpv1.NodePool
	// Requirements hold for every node of the claim, minValues included. ClaimRequirements returns them for the API.
	Requirements requirement.Set
	// InstanceTypes that hold all Pods, cheapest first. Launches share lists, so the caller must not modify them.
	InstanceTypes []*catalog.InstanceType
	// Offering is the cheapest available one of InstanceTypes[0].
	Offering catalog.Offering
	// Requests is the sum over Pods plus the daemon pods that come with the node.
	Requests corev1.ResourceList
	// Pods are the pods that the claim is launched for, in order of placement.
	Pods []*corev1.Pod
	// Drivers are the DRA drivers that must publish the node's devices before the node is ready for Pods, sorted.
	Drivers []string
	// Devices are the devices of the Pods with resource claims.
	Devices []DeviceUse
	// MinValuesRelaxed is true when a minValues of the pool was lowered (policy BestEffort).
	MinValuesRelaxed bool
}

// Costly is the pods of a namespace that have very many terms and get no node, and the steps that the search has taken for
// all such pods of the namespace.
type Costly struct {
	Namespace string
	Steps     int
	Pods      []*corev1.Pod
}

// IgnoredTerms are required or preferred terms that the plan leaves out, since no label can have their keys or values.
type IgnoredTerms struct {
	Pod *corev1.Pod
	// Why names each term and its error. It is never empty.
	Why []string
}

// Rejection is a pod that cannot be scheduled.
type Rejection struct {
	Pod *corev1.Pod
	// Reasons name, per pool, all that would have to change, or what of the pod no pool can change. Never empty.
	Reasons []rejection.Reason
}

// Deferred reports whether the pod waits for in-flight nodes: these show which reservations they leave to others. The
// next plan decides. Until then there is nothing to do.
func (r *Rejection) Deferred() bool {
	return slices.ContainsFunc(r.Reasons, func(why rejection.Reason) bool { return why.Code == rejection.Reserved })
}

// Ignored reports whether the pod was not considered at all, for its own spec or for its volumes.
func (r *Rejection) Ignored() bool {
	return slices.ContainsFunc(r.Reasons, func(why rejection.Reason) bool {
		return why.NodePool == "" && slices.Contains([]rejection.Code{
			rejection.InvalidPod, rejection.NotManaged, rejection.Volume, rejection.VolumePending, rejection.VolumeInUse, rejection.Unsupported,
		}, why.Code)
	})
}

// Stats describes what the plan cost to compute and what it costs to run.
type Stats struct {
	Pods          int `json:"pods"`
	Classes       int `json:"classes"`
	InstanceTypes int `json:"instanceTypes"`
	Steps         int `json:"steps"`
	// HourlyCost is the price of the new nodes, NodeCost their other cost (snapshot.Settings.NodeCost for each).
	HourlyCost float64 `json:"hourlyCost"`
	NodeCost   float64 `json:"nodeHourlyCost,omitempty"`
	// PreferenceCost holds what the plan costs more than a plan that ignores preferences, under the policy Priced.
	PreferenceCost float64 `json:"preferenceHourlyCost,omitempty"`
	// RelaxedPreferences counts the preferences that scheduled pods give up.
	RelaxedPreferences int `json:"-"`
	// LowerBound is a lower bound on the cost of any plan that schedules the same pods, in $/h, both costs together;
	// zero if the budget left it out.
	LowerBound float64 `json:"lowerBound"`
}

// Pods are all pods that the plan mentions.
func (p *Plan) Pods() map[*corev1.Pod]bool {
	out := map[*corev1.Pod]bool{}
	note := func(pods []*corev1.Pod) {
		for _, pod := range pods {
			out[pod] = true
		}
	}
	for i := range p.Placements {
		note(p.Placements[i].Pods)
	}
	for i := range p.Launches {
		note(p.Launches[i].Pods)
	}
	for i := range p.Rejected {
		out[p.Rejected[i].Pod] = true
	}
	return out
}
