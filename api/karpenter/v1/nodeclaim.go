package v1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
)

// NodeClaim is one node, from the decision to launch it until its instance is gone.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=nodeclaims,scope=Cluster,categories=karpenter
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".metadata.labels.node\\.kubernetes\\.io/instance-type",description=""
// +kubebuilder:printcolumn:name="Capacity",type="string",JSONPath=".metadata.labels.karpenter\\.sh/capacity-type",description=""
// +kubebuilder:printcolumn:name="Zone",type="string",JSONPath=".metadata.labels.topology\\.kubernetes\\.io/zone",description=""
// +kubebuilder:printcolumn:name="Node",type="string",JSONPath=".status.nodeName",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="ImageID",type="string",JSONPath=".status.imageID",priority=1,description=""
// +kubebuilder:printcolumn:name="ID",type="string",JSONPath=".status.providerID",priority=1,description=""
// +kubebuilder:printcolumn:name="NodePool",type="string",JSONPath=".metadata.labels.karpenter\\.sh/nodepool",priority=1,description=""
// +kubebuilder:printcolumn:name="NodeClass",type="string",JSONPath=".spec.nodeClassRef.name",priority=1,description=""
// +kubebuilder:printcolumn:name="Drifted",type="string",JSONPath=".status.conditions[?(@.type==\"Drifted\")].status",priority=1,description=""
type NodeClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:message="spec is immutable",rule="self == oldSelf"
	// +required
	Spec NodeClaimSpec `json:"spec"`
	// +optional
	Status NodeClaimStatus `json:"status,omitempty"`
}

// NodeClaimList is a list of NodeClaims.
// +kubebuilder:object:root=true
type NodeClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeClaim `json:"items"`
}

// NodeClaimSpec is the node that was requested. It never changes.
type NodeClaimSpec struct {
	// Taints stay on the node; only pods that tolerate them run there.
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// StartupTaints are on the node when it joins and are expected to be removed by another controller.
	// +listType=atomic
	// +optional
	StartupTaints []corev1.Taint `json:"startupTaints,omitempty"`
	// Requirements are all that the cloud may choose from.
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:message="operator 'In' needs values",rule="self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)"
	// +kubebuilder:validation:XValidation:message="operators 'Gt', 'Lt', 'Gte' and 'Lte' need one non-negative integer value",rule="self.all(x, (x.operator == 'Gt' || x.operator == 'Lt' || x.operator == 'Gte' || x.operator == 'Lte') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)"
	// +kubebuilder:validation:XValidation:message="operator 'In' with minValues needs at least that many values",rule="self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)"
	// +listType=atomic
	// +required
	Requirements []Requirement `json:"requirements"`
	// Resources states what the instance must at least hold.
	// +optional
	Resources ResourceRequirements `json:"resources,omitzero"`
	// NodeClassRef names the configuration of the cloud.
	// +required
	NodeClassRef NodeClassReference `json:"nodeClassRef"`
	// TerminationGracePeriod bounds how long draining may take. After it pods are deleted whatever
	// PodDisruptionBudgets and do-not-disrupt annotations allow. Unset means without bound.
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +optional
	TerminationGracePeriod *metav1.Duration `json:"terminationGracePeriod,omitempty"`
	// ExpireAfter is the age at which the node is terminated, or Never.
	// +kubebuilder:default:="720h"
	// +kubebuilder:validation:Pattern=`^(([0-9]+(s|m|h))+|Never)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +optional
	ExpireAfter NillableDuration `json:"expireAfter,omitzero"`
}

// ResourceRequirements describes what an instance must hold.
type ResourceRequirements struct {
	// Requests of the pods that the node is for, and of the daemon pods that come with it.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// NodeClaimStatus describes what became of the request.
type NodeClaimStatus struct {
	// NodeName is the Node's name, known from registration on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// ProviderID is the instance, known from launch on; for example aws:///eu-west-1a/i-0123456789abcdef0.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// ImageID is the image that the instance runs.
	// +optional
	ImageID string `json:"imageID,omitempty"`
	// Capacity is an estimate from the instance type.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Allocatable is an estimate from the instance type.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastPodEventTime is the time when a pod last came or went. It is kept coarse, at most one write in 10 s.
	// +optional
	LastPodEventTime metav1.Time `json:"lastPodEventTime,omitzero"`
}

// GetConditions returns the status conditions.
func (c *NodeClaim) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the status conditions.
func (c *NodeClaim) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// ConditionTypes are the conditions that Ready depends on.
func (c *NodeClaim) ConditionTypes() condition.Types {
	return condition.Types{Dependents: []string{ConditionLaunched, ConditionRegistered, ConditionInitialized}}
}

// Nominated are the pods that the claim was launched for, as one of its annotations AnnotationNominatedPods or
// AnnotationNominatedBuffers lists them; nil if it lists none.
func (c *NodeClaim) Nominated(annotation string) []types.UID {
	var out []types.UID
	for uid := range strings.SplitSeq(c.Annotations[annotation], ",") {
		if uid != "" {
			out = append(out, types.UID(uid))
		}
	}
	return out
}

// RemoveNominated removes pods from those that the claim was launched for.
func (c *NodeClaim) RemoveNominated(pods map[types.UID]bool) {
	var kept []string
	for _, uid := range c.Nominated(AnnotationNominatedPods) {
		if !pods[uid] {
			kept = append(kept, string(uid))
		}
	}
	if _, listed := c.Annotations[AnnotationNominatedPods]; listed {
		c.Annotations[AnnotationNominatedPods] = strings.Join(kept, ",")
	}
}
