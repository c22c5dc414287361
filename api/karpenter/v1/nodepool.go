package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
)

// NodePool defines which nodes may be launched, and when they may be disrupted.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodepools,scope=Cluster,categories=karpenter
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.nodes
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.template.spec.nodeClassRef.name",description=""
// +kubebuilder:printcolumn:name="Nodes",type="string",JSONPath=".status.nodes",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Disrupted",type="string",JSONPath=".status.disruption.disrupted",description=""
// +kubebuilder:printcolumn:name="Drifted",type="string",JSONPath=".status.disruption.drifted",description=""
// +kubebuilder:printcolumn:name="Budget",type="string",JSONPath=".status.disruption.allowed",description=""
// +kubebuilder:printcolumn:name="Weight",type="integer",JSONPath=".spec.weight",priority=1,description=""
// +kubebuilder:printcolumn:name="CPU",type="string",JSONPath=".status.resources.cpu",priority=1,description=""
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.resources.memory",priority=1,description=""
type NodePool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NodePoolSpec `json:"spec"`
	// +optional
	Status NodePoolStatus `json:"status,omitempty"`
}

// NodePoolList is a list of NodePools.
// +kubebuilder:object:root=true
type NodePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodePool `json:"items"`
}

// NodePoolSpec describes what the user wants of a NodePool.
// +kubebuilder:validation:XValidation:message="replicas can be neither added nor removed",rule="has(self.replicas) == has(oldSelf.replicas)"
// +kubebuilder:validation:XValidation:message="with replicas, limits may only name 'nodes'",rule="!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0 || (size(self.limits) == 1 && 'nodes' in self.limits))"
// +kubebuilder:validation:XValidation:message="weight cannot be used with replicas",rule="!has(self.replicas) || !has(self.weight)"
type NodePoolSpec struct {
	// Template is the blueprint of the NodeClaims that this pool creates. Requirements and labels are
	// compared with the pods' needs; a change of anything but the requirements makes nodes drift.
	// +required
	Template NodeClaimTemplate `json:"template"`
	// Disruption defines when and how fast nodes may be disrupted.
	// +kubebuilder:default:={consolidateAfter: "0s"}
	// +optional
	Disruption Disruption `json:"disruption,omitzero"`
	// Limits bound what the pool's nodes may add up to, per resource; "nodes" bounds their number.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Weight orders pools: higher is tried first. Unset counts as 0.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	Weight *int32 `json:"weight,omitempty"`
	// Replicas makes the pool a static one, with this number of nodes whatever the pods need.
	// This field is ALPHA.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int64 `json:"replicas,omitempty"`
}

// NodeClaimTemplate is the blueprint of a NodeClaim.
type NodeClaimTemplate struct {
	// +optional
	ObjectMeta `json:"metadata,omitzero"`
	// +required
	Spec NodeClaimTemplateSpec `json:"spec"`
}

// ObjectMeta describes what a template may set in the metadata of NodeClaim and Node.
type ObjectMeta struct {
	// Labels are put on NodeClaim and Node, and count as requirements.
	// +kubebuilder:validation:MaxProperties=100
	// +kubebuilder:validation:XValidation:message="label domain \"karpenter.sh\" is restricted",rule="self.all(x, x in [\"karpenter.sh/capacity-type\", \"karpenter.sh/nodepool\"] || !x.find(\"^([^/]+)\").endsWith(\"karpenter.sh\"))"
	// +kubebuilder:validation:XValidation:message="label \"karpenter.sh/nodepool\" is restricted",rule="self.all(x, x != \"karpenter.sh/nodepool\")"
	// +kubebuilder:validation:XValidation:message="label \"kubernetes.io/hostname\" is restricted",rule="self.all(x, x != \"kubernetes.io/hostname\")"
	// +mapType=atomic
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are put on NodeClaim and Node.
	// +mapType=granular
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NodeClaimTemplateSpec is the blueprint of a NodeClaim's spec.
type NodeClaimTemplateSpec struct {
	// Taints stay on the node; only pods that tolerate them run there.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on the node when it joins and are expected to be removed by another controller. Pods
	// need not tolerate them, but the node is not initialized before they are gone.
	// +listType=atomic
	// +optional
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// Requirements constrain the shape of the node.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:message="operator 'In' needs values",rule="self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)"
	// +kubebuilder:validation:XValidation:message="operators 'Gt', 'Lt', 'Gte' and 'Lte' need one non-negative integer value",rule="self.all(x, (x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || x.operator == 'Lte') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)"
	// +kubebuilder:validation:XValidation:message="operator 'In' with minValues needs at least that many values",rule="self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)"
	// +listType=atomic
	// +required
	Requirements []Requirement `json:"requirements" hash:"ignore"`
	// NodeClassRef names the configuration of the cloud. Group and kind cannot change.
	// +kubebuilder:validation:XValidation:message="nodeClassRef.group is immutable",rule="self.group == oldSelf.group"
	// +kubebuilder:validation:XValidation:message="nodeClassRef.kind is immutable",rule="self.kind == oldSelf.kind"
	// +required
	NodeClassRef NodeClassReference `json:"nodeClassRef"`
	// TerminationGracePeriod bounds how long draining may take. After it pods are deleted whatever
	// PodDisruptionBudgets and do-not-disrupt annotations allow. Unset means without bound.
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +optional
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
	// ExpireAfter is the age at which nodes are terminated, or Never.
	// +kubebuilder:default:="720h"
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +optional
	ExpireAfter NillableDuration `json:"expireAfter,omitzero"`
}

// Disruption defines when and how fast nodes may be disrupted.
type Disruption struct {
	// ConsolidateAfter states how long no pod may have come or gone before a node may be consolidated;
	// Never turns consolidation off.
	// +kubebuilder:default:="0s"
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +optional
	ConsolidateAfter NillableDuration `json:"consolidateAfter,omitzero"`
	// ConsolidationPolicy selects the nodes that consolidation may disrupt.
	// +kubebuilder:default:="WhenEmptyOrUnderutilized"
	// +kubebuilder:validation:Enum:={WhenEmpty,WhenEmptyOrUnderutilized,Balanced}
	// +optional
	ConsolidationPolicy ConsolidationPolicy `json:"consolidationPolicy,omitempty"`
	// Budgets bound how many nodes may be disrupted at a time. The most restrictive active one counts;
	// an explicit empty list means without bound.
	// +kubebuilder:validation:XValidation:message="'schedule' must be set with 'duration'",rule="self.all(x, has(x.schedule) == has(x.duration))"
	// +kubebuilder:default:={{nodes: "10%"}}
	// +kubebuilder:validation:MaxItems=50
	// +listType=atomic
	// +optional
	Budgets []Budget `json:"budgets,omitzero"`
}

// ConsolidationPolicy selects the nodes that consolidation may disrupt.
type ConsolidationPolicy string

// The consolidation policies.
const (
	ConsolidationWhenEmpty                ConsolidationPolicy = "WhenEmpty"
	ConsolidationWhenEmptyOrUnderutilized ConsolidationPolicy = "WhenEmptyOrUnderutilized"
	// ConsolidationBalanced weighs what a move saves against whom it disturbs.
	ConsolidationBalanced ConsolidationPolicy = "Balanced"
)

// Budget bounds how many nodes of a pool may be disrupted at a time.
type Budget struct {
	// Reasons that the budget covers; all when not given.
	// +kubebuilder:validation:MaxItems=50
	// +listType=set
	// +optional
	Reasons []DisruptionReason `json:"reasons,omitempty"`
	// Nodes is a number, or a percentage of the pool's nodes (rounded up).
	// +kubebuilder:default:="10%"
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	// +required
	Nodes string `json:"nodes"`
	// Schedule states when the budget becomes active: five cron fields or a macro, in UTC. Unset means always.
	// +kubebuilder:validation:Pattern=`^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$`
	// +optional
	Schedule *string `json:"schedule,omitempty"`
	// Duration states how long the budget stays active each time, in hours and minutes.
	// +kubebuilder:validation:Pattern=`^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// DisruptionReason states why a node is disrupted voluntarily.
// +kubebuilder:validation:Enum={Underutilized,Empty,Drifted,Unhealthy}
type DisruptionReason string

// The reasons of voluntary disruption.
const (
	DisruptionUnderutilized DisruptionReason = "Underutilized"
	DisruptionEmpty         DisruptionReason = "Empty"
	DisruptionDrifted       DisruptionReason = "Drifted"
	// DisruptionUnhealthy is the reason of node repair.
	DisruptionUnhealthy DisruptionReason = "Unhealthy"
)

// DisruptionReasons are all reasons of voluntary disruption, in the order in which budgets are shown.
func DisruptionReasons() []DisruptionReason {
	return []DisruptionReason{DisruptionEmpty, DisruptionUnderutilized, DisruptionDrifted, DisruptionUnhealthy}
}

// NodePoolStatus is what is known about a NodePool.
type NodePoolStatus struct {
	// Resources are the sum of what the pool's nodes have.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Nodes is the number of the pool's nodes.
	// +kubebuilder:default:=0
	// +optional
	Nodes *int64 `json:"nodes,omitempty"`
	// NodeClassObservedGeneration is the node class's generation for which NodeRegistrationHealthy holds.
	// +optional
	NodeClassObservedGeneration int64 `json:"nodeClassObservedGeneration,omitempty"`
	// Disruption is for people to read; nothing depends on it. Another CRD of this kind may lack the field.
	// +optional
	Disruption *DisruptionStatus `json:"disruption,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DisruptionStatus describes what is disrupted, and what budgets allow.
type DisruptionStatus struct {
	// Nodes counts how many nodes percentages in budgets are of: those that are initialized, and not terminating.
	// +optional
	Nodes int64 `json:"nodes"`
	// Disrupted counts how many nodes count against budgets now: they are being removed, or are not ready.
	// +optional
	Disrupted int64 `json:"disrupted"`
	// Drifted counts how many nodes differ from what the pool would launch now.
	// +optional
	Drifted int64 `json:"drifted"`
	// Allowed counts how many nodes budgets allow to be disrupted at once now, in words.
	// +optional
	Allowed string `json:"allowed"`
	// Budgets is the same by reason.
	// +listType=atomic
	// +optional
	Budgets []BudgetStatus `json:"budgets,omitempty"`
}

// BudgetStatus describes what budgets allow for one reason now.
type BudgetStatus struct {
	// +required
	Reason DisruptionReason `json:"reason"`
	// Nodes counts how many may be disrupted at once; unset if any number may.
	// +optional
	Nodes *int64 `json:"nodes,omitempty"`
}

// GetConditions returns the status conditions.
func (p *NodePool) GetConditions() []metav1.Condition { return p.Status.Conditions }

// SetConditions replaces the status conditions.
func (p *NodePool) SetConditions(conditions []metav1.Condition) { p.Status.Conditions = conditions }

// ConditionTypes are the conditions that Ready depends on.
func (p *NodePool) ConditionTypes() condition.Types {
	return condition.Types{
		Dependents: []string{ConditionValidationSucceeded, ConditionNodeClassReady},
		Vetoes:     []string{ConditionNodesCanJoin},
	}
}
