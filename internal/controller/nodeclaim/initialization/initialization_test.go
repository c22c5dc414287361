package initialization

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestWaitsFor(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	readiness := func(effect corev1.TaintEffect) func(*karpv1.NodeClaim, *corev1.Node) {
		return func(_ *karpv1.NodeClaim, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{taint("readiness.k8s.io/network", "", effect)}
		}
	}
	tests := []struct {
		name   string
		change func(claim *karpv1.NodeClaim, node *corev1.Node)
		reason string
		names  string
	}{
		{"ready, no taints, all resources", func(*karpv1.NodeClaim, *corev1.Node) {}, "", ""},
		{
			"node not ready",
			func(_ *karpv1.NodeClaim, n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse },
			"NodeNotReady", "node-a",
		},
		{
			"requested GPU is absent",
			func(c *karpv1.NodeClaim, _ *corev1.Node) {
				c.Spec.Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
			},
			"ResourceNotRegistered", "nvidia.com/gpu",
		},
		{
			"requested GPU is zero",
			func(c *karpv1.NodeClaim, n *corev1.Node) {
				c.Spec.Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
				n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0")
			},
			"ResourceNotRegistered", "nvidia.com/gpu",
		},
		{
			"a zero request needs nothing",
			func(c *karpv1.NodeClaim, _ *corev1.Node) {
				c.Spec.Resources.Requests["nvidia.com/gpu"] = resource.MustParse("0")
			},
			"", "",
		},
		{
			"one of several startup taints is left, whatever its value",
			func(c *karpv1.NodeClaim, n *corev1.Node) {
				c.Spec.StartupTaints = []corev1.Taint{taint("a", "x", "NoSchedule"), taint("b", "", "NoExecute")}
				n.Spec.Taints = []corev1.Taint{taint("a", "y", "NoSchedule")}
			},
			"StartupTaintsExist", "a=y:NoSchedule",
		},
		{
			"a startup taint's key with another effect is another taint",
			func(c *karpv1.NodeClaim, n *corev1.Node) {
				c.Spec.StartupTaints = []corev1.Taint{taint("a", "", "NoSchedule")}
				n.Spec.Taints = []corev1.Taint{taint("a", "", "NoExecute")}
			},
			"", "",
		},
		{
			"the cloud controller manager has not finished",
			func(_ *karpv1.NodeClaim, n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{taint("node.cloudprovider.kubernetes.io/uninitialized", "anything", "NoSchedule")}
			},
			"KnownEphemeralTaintsExist", "uninitialized",
		},
		{"a readiness rule, NoSchedule", readiness(corev1.TaintEffectNoSchedule), "KnownEphemeralTaintsExist", "readiness.k8s.io/network"},
		{
			"a readiness rule, PreferNoSchedule",
			readiness(corev1.TaintEffectPreferNoSchedule),
			"KnownEphemeralTaintsExist",
			"readiness.k8s.io/network",
		},
		{"a readiness rule, NoExecute", readiness(corev1.TaintEffectNoExecute), "KnownEphemeralTaintsExist", "readiness.k8s.io/network"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			claim := &karpv1.NodeClaim{}
			claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			node := corev1.Node{}
			node.Name = "node-a"
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
			tt.change(claim, &node)
			reason, message := waitsFor(claim, []corev1.Node{node}, nil)
			if reason != tt.reason || !strings.Contains(message, tt.names) {
				t.Errorf("waits for %q (%s), want %q naming %q", reason, message, tt.reason, tt.names)
			}
		})
	}
	t.Run("no node", func(t *testing.T) {
		if reason, _ := waitsFor(&karpv1.NodeClaim{}, nil, nil); reason != "NodeNotFound" {
			t.Errorf("reason %q", reason)
		}
	})
}
