package cluster

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Heartbeat reports whether two versions of a Node differ only in when its conditions were last reported. Every kubelet writes such a
// version each five minutes, which is seventeen a second with 5,000 nodes, and several controllers request each.
func Heartbeat(before, after *corev1.Node) bool {
	return before.ResourceVersion != after.ResourceVersion &&
		slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, sameCondition) &&
		maps.Equal(before.Labels, after.Labels) && maps.Equal(before.Annotations, after.Annotations) &&
		reflect.DeepEqual(withoutReports(before), withoutReports(after))
}

func sameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.LastTransitionTime.Equal(&b.LastTransitionTime)
}

// withoutReports is a Node without what Heartbeat compares itself, and what identifies the version.
func withoutReports(node *corev1.Node) *corev1.Node {
	out := *node
	out.ResourceVersion, out.ManagedFields, out.Status.Conditions = "", nil, nil
	out.Labels, out.Annotations = nil, nil // to compare maps by reflection makes a copy of each key and value
	return &out
}
