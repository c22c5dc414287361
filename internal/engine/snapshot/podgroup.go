package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
)

// PodGroup is a PodGroup that pods name, with these pods.
type PodGroup struct {
	Namespace, Name string
	// Object is nil while the PodGroup does not exist.
	Object *schedulingv1beta1.PodGroup
	// Members are all pods of the cluster that name the group, with a node or without, in any phase, by name.
	Members []*corev1.Pod
}

// PodGroupOf is the namespace and name of the PodGroup that the pod names; false if it names none.
func PodGroupOf(p *corev1.Pod) (types.NamespacedName, bool) {
	if p.Spec.SchedulingGroup == nil || p.Spec.SchedulingGroup.PodGroupName == nil || *p.Spec.SchedulingGroup.PodGroupName == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.Namespace, Name: *p.Spec.SchedulingGroup.PodGroupName}, true
}
