package snapshot

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// TaintUninitialized is on a node until the cloud controller manager has initialized it.
const TaintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// owners are the components that remove the taints that a node starts with.
var owners = map[string]string{
	TaintUninitialized:                 "the cloud controller manager",
	corev1.TaintNodeNotReady:           "the node lifecycle controller, once kubelet reports Ready",
	corev1.TaintNodeUnreachable:        "the node lifecycle controller, once kubelet reports again",
	corev1.TaintNodeNetworkUnavailable: "the network plugin or the route controller",
	karpv1.TaintKeyUnregistered:        "Dovetail",
	"ebs.csi.aws.com/agent-not-ready":  "the EBS CSI driver",
	"efs.csi.aws.com/agent-not-ready":  "the EFS CSI driver",
	"node.cilium.io/agent-not-ready":   "Cilium",
	"node.cilium.io/init-required":     "Cilium",
	"nidhogg.uswitch.com":              "Nidhogg",
}

// TaintOwner returns which component removes a taint that nodes start with; false for any other taint.
func TaintOwner(t *corev1.Taint) (string, bool) {
	if strings.HasPrefix(t.Key, "readiness.k8s.io/") {
		return "the node readiness controller", true
	}
	owner, known := owners[t.Key]
	return owner, known
}
