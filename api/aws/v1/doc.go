// Package v1 holds EC2NodeClass of the API group karpenter.k8s.aws, version v1: how nodes are launched on
// EC2. It is compatible with Karpenter's.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.k8s.aws
package v1
