package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// registered is a claim with a pod nominated to it, its Node, and when it has registered.
func registered() (*karpv1.NodeClaim, *corev1.Node, time.Time) {
	node := &corev1.Node{}
	node.Name, node.Spec.ProviderID = "n", "aws:///a/i-1"
	node.Labels = map[string]string{karpv1.LabelRegistered: "true"}
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = "a", "uid-a"
	claim.Status.ProviderID = node.Spec.ProviderID
	claim.Annotations = map[string]string{karpv1.AnnotationNominatedPods: "pod-1"}
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	condition.SetTrue(claim, karpv1.ConditionLaunched, now)
	condition.SetTrue(claim, karpv1.ConditionRegistered, now)
	return claim, node, now
}

// A node that waits for a taint within its time is capacity for the pods that it was created for; beyond it, they are
// planned anew, and the taint counts.
func TestNodeThatWaitsForATaint(t *testing.T) {
	claim, node, now := registered()
	node.Spec.Taints = []corev1.Taint{
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
	}
	for reason, beyond := range map[string]bool{"KnownEphemeralTaintsExist": false, ReasonTaintStuck: true} {
		condition.SetUnknown(claim, karpv1.ConditionInitialized, condition.Because(reason, ""), now)
		snap := BuildSnapshot(Objects{NodeClaims: []*karpv1.NodeClaim{claim}, Nodes: []*corev1.Node{node}}, Facts{Now: now})
		if got := snap.Nodes[0]; (len(got.Taints) == 1) != beyond || (len(got.Nominated) == 0) != beyond {
			t.Errorf("%s: taints %v, nominated %v", reason, got.Taints, got.Nominated)
		}
	}
}

// A node that never becomes Ready takes no further pods, whether or not it has its taint yet, and those that were
// nominated to it are planned again.
func TestNodeThatNeverBecomesReadyTakesNoPods(t *testing.T) {
	claim, node, now := registered()
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	for _, taints := range [][]corev1.Taint{nil, {notReady}} {
		node.Spec.Taints = taints
		for reason, beyond := range map[string]bool{"NodeNotReady": false, ReasonNotReadyStuck: true} {
			condition.SetUnknown(claim, karpv1.ConditionInitialized, condition.Because(reason, ""), now)
			snap := BuildSnapshot(Objects{NodeClaims: []*karpv1.NodeClaim{claim}, Nodes: []*corev1.Node{node}}, Facts{Now: now})
			if got := snap.Nodes[0]; (len(got.Taints) == 1) != beyond || (len(got.Nominated) == 0) != beyond {
				t.Errorf("%s, node with %v: taints %v, nominated %v", reason, taints, got.Taints, got.Nominated)
			}
		}
	}
}
