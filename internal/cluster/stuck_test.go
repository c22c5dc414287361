package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// A node that waits for a taint within its time is capacity for the pods that it was bought for; beyond it, they are
// planned anew, and the taint counts.
func TestNodeThatWaitsForATaint(t *testing.T) {
	node := &corev1.Node{}
	node.Name, node.Spec.ProviderID = "n", "aws:///a/i-1"
	node.Labels = map[string]string{karpv1.LabelRegistered: "true"}
	node.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = "a", "uid-a"
	claim.Status.ProviderID = node.Spec.ProviderID
	claim.Annotations = map[string]string{karpv1.AnnotationNominatedPods: "pod-1"}
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	condition.SetTrue(claim, karpv1.ConditionLaunched, now)
	condition.SetTrue(claim, karpv1.ConditionRegistered, now)
	for reason, beyond := range map[string]bool{"KnownEphemeralTaintsExist": false, ReasonTaintStuck: true} {
		condition.SetUnknown(claim, karpv1.ConditionInitialized, reason, "", now)
		snap := Cut(Objects{NodeClaims: []*karpv1.NodeClaim{claim}, Nodes: []*corev1.Node{node}}, Facts{Now: now})
		if got := snap.Nodes[0]; (len(got.Taints) == 1) != beyond || (len(got.Nominated) == 0) != beyond {
			t.Errorf("%s: taints %v, nominated %v", reason, got.Taints, got.Nominated)
		}
	}
}
