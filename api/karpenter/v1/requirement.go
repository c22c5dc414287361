package v1

import corev1 "k8s.io/api/core/v1"

// Operators of requirements beyond those that pods' node affinity has.
const (
	OperatorGte corev1.NodeSelectorOperator = "Gte"
	OperatorLte corev1.NodeSelectorOperator = "Lte"
)

// Requirement constrains the value of one label.
type Requirement struct {
	// Key is the label constrained.
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	// +kubebuilder:validation:XValidation:message="label domain \"karpenter.sh\" is restricted",rule="self in [\"karpenter.sh/capacity-type\", \"karpenter.sh/nodepool\"] || !self.find(\"^([^/]+)\").endsWith(\"karpenter.sh\")"
	// +kubebuilder:validation:XValidation:message="label \"kubernetes.io/hostname\" is restricted",rule="self != \"kubernetes.io/hostname\""
	// +required
	Key string `json:"key"`
	// Operator relates the label's value to Values.
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt;Gte;Lte
	// +required
	Operator corev1.NodeSelectorOperator `json:"operator"`
	// Values of In and NotIn; the one non-negative integer of Gt, Lt, Gte and Lte; empty for Exists and DoesNotExist.
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	// +listType=atomic
	// +optional
	Values []string `json:"values,omitempty"`
	// MinValues states how many distinct values of the key must stay possible at launch.
	// This field is ALPHA.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	// +optional
	MinValues *int `json:"minValues,omitempty"`
}

// NodeClassReference names the object that configures the cloud for a node.
type NodeClassReference struct {
	// Kind of the node class, for example EC2NodeClass.
	// +kubebuilder:validation:XValidation:message="kind may not be empty",rule="self != ''"
	// +required
	Kind string `json:"kind"`
	// Name of the node class.
	// +kubebuilder:validation:XValidation:message="name may not be empty",rule="self != ''"
	// +required
	Name string `json:"name"`
	// Group is the API group of the node class, for example karpenter.k8s.aws.
	// +kubebuilder:validation:Pattern=`^[^/]*$`
	// +kubebuilder:validation:XValidation:message="group may not be empty",rule="self != ''"
	// +required
	Group string `json:"group"`
}
