// Package v1alpha1 holds NodeOverlay of the API group karpenter.sh, version v1alpha1: corrections to what
// the cloud states about prices and capacity of instance types. It is compatible with Karpenter's.
//
// +kubebuilder:object:generate=true
// +groupName=karpenter.sh
package v1alpha1
