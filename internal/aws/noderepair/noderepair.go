// Package noderepair has the repair policies of EKS nodes: which node conditions, for how long, make node repair replace a node.
package noderepair

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// How long a condition is tolerated. 30 minutes outlast a reboot and the restart of a component. Failed accelerators do not
// recover, and are the most expensive to leave idle. Both are what Karpenter's users expect.
const (
	toleration            = 30 * time.Minute
	acceleratorToleration = 10 * time.Minute
)

// Policies are the conditions of EKS nodes that require a replacement: those of the kubelet, and those of the EKS node
// monitoring agent.
func Policies() []cloudprovider.RepairPolicy {
	return []cloudprovider.RepairPolicy{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: toleration},
		{Type: "AcceleratedHardwareReady", Status: corev1.ConditionFalse, Toleration: acceleratorToleration},
		{Type: "StorageReady", Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: "NetworkingReady", Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: "KernelReady", Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: "ContainerRuntimeReady", Status: corev1.ConditionFalse, Toleration: toleration},
	}
}
