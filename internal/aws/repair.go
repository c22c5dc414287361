package aws

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// RepairPolicies are the conditions of EKS nodes that call for another node: those of the kubelet, and those of the EKS node
// monitoring agent.
func RepairPolicies() []cloudprovider.RepairPolicy {
	const usual, accelerators = 30 * time.Minute, 10 * time.Minute
	return []cloudprovider.RepairPolicy{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: usual},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: usual},
		{Type: "AcceleratedHardwareReady", Status: corev1.ConditionFalse, Toleration: accelerators},
		{Type: "StorageReady", Status: corev1.ConditionFalse, Toleration: usual},
		{Type: "NetworkingReady", Status: corev1.ConditionFalse, Toleration: usual},
		{Type: "KernelReady", Status: corev1.ConditionFalse, Toleration: usual},
		{Type: "ContainerRuntimeReady", Status: corev1.ConditionFalse, Toleration: usual},
	}
}
