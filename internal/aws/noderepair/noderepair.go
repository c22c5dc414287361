// Package noderepair has the repair policies of EKS nodes: which node conditions, for how long, make node repair reboot or
// replace a node.
package noderepair

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// How long a condition is tolerated, and how long the drain may take then. 30 minutes outlast a reboot and the restart of
// a component. Failed accelerators do not recover, and are the most expensive to leave idle. All are what Karpenter's
// users expect.
const (
	toleration            = 30 * time.Minute
	acceleratorToleration = 10 * time.Minute
	drainBound            = 10 * time.Minute
	acceleratorDrainBound = 5 * time.Minute
)

// Priorities. A node that runs nothing, or with hardware that is lost, comes before one that a reboot may repair, and that
// before one with a part that fails. In Karpenter all are 0, so the oldest fault comes first, however small.
const (
	fatalPriority     = 100
	clearablePriority = 50
)

// The condition of accelerators that the EKS node monitoring agent reports.
const acceleratedHardwareReady corev1.NodeConditionType = "AcceleratedHardwareReady"

// XID errors of NVIDIA drivers, by what Karpenter does about them: a reset of the GPU clears the first, the second need
// other hardware.
var (
	clearableXIDs = []int{46, 48, 54, 62, 63, 95, 109, 110, 136, 140, 143, 155, 156, 158}
	fatalXIDs     = []int{64, 74, 79, 119, 120}
)

// Policies are the repair policies of EKS nodes: for the conditions of the kubelet, and for those of the EKS node
// monitoring agent. Reasons of other accelerator faults have the fallback. Without reboot, nodes are replaced for faults
// that a reboot may clear.
func Policies(reboot bool) []karpv1.RepairPolicy {
	clear := karpv1.RepairReplace
	if reboot {
		clear = karpv1.RepairReboot
	}
	accelerator := karpv1.RepairPolicy{
		Condition: acceleratedHardwareReady, Status: corev1.ConditionFalse, Toleration: metav1.Duration{Duration: acceleratorToleration},
		TerminationGracePeriod: &metav1.Duration{Duration: acceleratorDrainBound},
	}
	clearable, fatal := accelerator, accelerator
	clearable.Reason, clearable.Priority, clearable.Action = xidPattern(clearableXIDs), clearablePriority, clear
	fatal.Reason, fatal.Priority, fatal.Action = xidPattern(fatalXIDs), fatalPriority, karpv1.RepairReplace
	other := replace(acceleratedHardwareReady, corev1.ConditionFalse, 0)
	other.Reason = ""
	return []karpv1.RepairPolicy{
		replace(corev1.NodeReady, corev1.ConditionFalse, fatalPriority),
		replace(corev1.NodeReady, corev1.ConditionUnknown, fatalPriority),
		clearable, fatal, other,
		replace("StorageReady", corev1.ConditionFalse, 0),
		replace("NetworkingReady", corev1.ConditionFalse, 0),
		replace("KernelReady", corev1.ConditionFalse, 0),
		replace("ContainerRuntimeReady", corev1.ConditionFalse, 0),
	}
}

// replace is the policy that replaces a node for a condition, whatever its reason.
func replace(condition corev1.NodeConditionType, status corev1.ConditionStatus, priority int) karpv1.RepairPolicy {
	return karpv1.RepairPolicy{
		Condition: condition, Status: status, Reason: ".*", Toleration: metav1.Duration{Duration: toleration},
		TerminationGracePeriod: &metav1.Duration{Duration: drainBound}, Priority: priority, Action: karpv1.RepairReplace,
	}
}

// xidPattern matches reasons with one of the XIDs, and not with a longer number that begins with one.
func xidPattern(xids []int) string {
	numbers := make([]string, len(xids))
	for i, n := range xids {
		numbers[i] = strconv.Itoa(n)
	}
	return fmt.Sprintf("XID(%s)([^0-9]|$)", strings.Join(numbers, "|"))
}

// Legacy are the conditions that the repair of Karpenter 1.14 replaces nodes for, whatever their reason.
func Legacy() []cloudprovider.RepairPolicy {
	return []cloudprovider.RepairPolicy{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: toleration},
		{Type: acceleratedHardwareReady, Status: corev1.ConditionFalse, Toleration: acceleratorToleration},
		{Type: "StorageReady", Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: "NetworkingReady", Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: "KernelReady", Status: corev1.ConditionFalse, Toleration: toleration},
		{Type: "ContainerRuntimeReady", Status: corev1.ConditionFalse, Toleration: toleration},
	}
}
