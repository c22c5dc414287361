package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StrategyActiveCapacity keeps nodes running for the buffer.
const StrategyActiveCapacity = "buffer.x-k8s.io/active-capacity"

// Condition types. There is no root condition.
const (
	ConditionReadyForProvisioning = "ReadyForProvisioning"
	ConditionProvisioning         = "Provisioning"
	// ConditionLimitedByQuotas is True where ResourceQuotas of the namespace allow fewer pods than the buffer has replicas. A buffer in a
	// namespace without quotas does not have it.
	ConditionLimitedByQuotas = "LimitedByQuotas"
)

// Reasons of ConditionReadyForProvisioning; the first means True.
const (
	ReasonResolved            = "Resolved"
	ReasonScalableRefNotFound = "ScalableRefNotFound"
	ReasonPodTemplateNotFound = "PodTemplateNotFound"
	ReasonResolutionFailed    = "ResolutionFailed"
)

// Reasons of ConditionLimitedByQuotas; the first means True.
const (
	ReasonQuotasAllocated = "ResourceQuotasAllocated"
	ReasonWithinQuotas    = "WithinQuotas"
)

// Reasons of ConditionProvisioning; the first means True.
const (
	ReasonFitsExistingCapacity    = "FitsExistingCapacity"
	ReasonRequiresNewCapacity     = "RequiresNewCapacity"
	ReasonNotReadyForProvisioning = "NotReadyForProvisioning"
	ReasonBufferEmpty             = "BufferEmpty"
)

// CapacityBuffer keeps room free for pods that do not exist yet.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=capacitybuffers,scope=Namespaced,categories=autoscaling,shortName=cb
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Strategy",type="string",JSONPath=".spec.provisioningStrategy",description=""
// +kubebuilder:printcolumn:name="PodTemplate",type="string",JSONPath=".status.podTemplateRef.name",description=""
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".status.replicas",description=""
// +kubebuilder:printcolumn:name="ConditionsType",type="string",JSONPath=".status.conditions[*].type",description=""
// +kubebuilder:printcolumn:name="ConditionsStatus",type="string",JSONPath=".status.conditions[*].status",description=""
// +kubebuilder:printcolumn:name="ConditionsReason",type="string",JSONPath=".status.conditions[*].reason",description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
type CapacityBuffer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CapacityBufferSpec `json:"spec"`
	// +optional
	Status CapacityBufferStatus `json:"status,omitempty"`
}

// CapacityBufferList is a list of CapacityBuffers.
// +kubebuilder:object:root=true
type CapacityBufferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CapacityBuffer `json:"items"`
}

// CapacityBufferSpec states how much room to keep, and of which shape.
// +kubebuilder:validation:XValidation:message="with podTemplateRef, replicas or limits must be given",rule="!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)"
// +kubebuilder:validation:XValidation:message="podTemplateRef and scalableRef exclude one another",rule="!(has(self.podTemplateRef) && has(self.scalableRef))"
type CapacityBufferSpec struct {
	// ProvisioningStrategy states how the room is kept.
	// +kubebuilder:default:="buffer.x-k8s.io/active-capacity"
	// +optional
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
	// PodTemplateRef names a PodTemplate of the same namespace: one chunk of the buffer.
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// ScalableRef names a workload of the same namespace; its pods are the chunks.
	// +optional
	ScalableRef *ScalableRef `json:"scalableRef,omitempty"`
	// Replicas is the number of chunks.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Percentage is the number of chunks as a share of the workload's replicas, rounded up. With Replicas
	// the larger one counts.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Percentage *int32 `json:"percentage,omitempty"`
	// Limits bound what all chunks may add up to.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// LocalObjectRef names an object of the same namespace.
type LocalObjectRef struct {
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
}

// ScalableRef names a workload of the same namespace.
type ScalableRef struct {
	// APIGroup of the workload; empty means apps.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind is Deployment, StatefulSet or ReplicaSet.
	// +kubebuilder:validation:MinLength=1
	// +required
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`
}

// CapacityBufferStatus describes what the buffer comes to.
type CapacityBufferStatus struct {
	// PodTemplateRef is the template in use; unset for a workload's.
	// +optional
	PodTemplateRef *LocalObjectRef `json:"podTemplateRef,omitempty"`
	// PodTemplateGeneration is the template's generation that was read.
	// +optional
	PodTemplateGeneration *int64 `json:"podTemplateGeneration,omitempty"`
	// Replicas is the number of chunks.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// ProvisioningStrategy in use.
	// +optional
	ProvisioningStrategy *string `json:"provisioningStrategy,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
