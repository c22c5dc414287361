package cluster

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Heartbeat reports whether two versions of a Node differ only in when its conditions were last reported. Every kubelet writes such a
// version each five minutes, which is seventeen a second with 5,000 nodes.
func Heartbeat(before, after *corev1.Node) bool {
	return before.ResourceVersion != after.ResourceVersion &&
		slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, sameCondition) &&
		reflect.DeepEqual(withoutReports(before), withoutReports(after))
}

func sameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.LastTransitionTime.Equal(&b.LastTransitionTime)
}

// withoutReports is a Node without its conditions and what identifies the version.
func withoutReports(node *corev1.Node) *corev1.Node {
	out := *node
	out.ResourceVersion, out.ManagedFields, out.Status.Conditions = "", nil, nil
	return &out
}
