// Package v1beta1 holds CapacityBuffer of the API group autoscaling.x-k8s.io, version v1beta1: room to keep
// free for pods that do not exist yet.
//
// +kubebuilder:object:generate=true
// +groupName=autoscaling.x-k8s.io
package v1beta1
