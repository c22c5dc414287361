package manifest

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

// owners returns the objects that group pods. For a Deployment that is the ReplicaSet of its pods.
func (r *reader) owners() cluster.Owners {
	out := cluster.Owners{
		Services:               all[*corev1.Service](r),
		ReplicationControllers: all[*corev1.ReplicationController](r),
		ReplicaSets:            all[*appsv1.ReplicaSet](r),
		StatefulSets:           all[*appsv1.StatefulSet](r),
	}
	for _, d := range all[*appsv1.Deployment](r) {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
		rs.Spec.Template = d.Spec.Template
		rs.Spec.Selector = selector(d.Spec.Selector, &d.Spec.Template).DeepCopy()
		rs.Spec.Selector.MatchLabels = with(rs.Spec.Selector.MatchLabels, appsv1.DefaultDeploymentUniqueLabelKey, templateHash(&d.Spec.Template))
		out.ReplicaSets = append(out.ReplicaSets, rs)
	}
	for _, rs := range all[*appsv1.ReplicaSet](r) {
		if rs.Spec.Selector == nil {
			rs.Spec.Selector = selector(nil, &rs.Spec.Template)
		}
	}
	for _, ss := range all[*appsv1.StatefulSet](r) {
		if ss.Spec.Selector == nil {
			ss.Spec.Selector = selector(nil, &ss.Spec.Template)
		}
	}
	return out
}

// selector returns the selector of a workload; without one, its pods' labels.
func selector(own *metav1.LabelSelector, template *corev1.PodTemplateSpec) *metav1.LabelSelector {
	if own != nil {
		return own
	}
	return &metav1.LabelSelector{MatchLabels: template.Labels}
}

// relevant reports whether an object affects a plan: a workload without pods does not. A StatefulSet may, by a CapacityBuffer.
func relevant(o client.Object) bool {
	switch t := o.(type) {
	case *corev1.Service:
		return len(t.Spec.Selector) > 0
	case *corev1.ReplicationController:
		return orOne(t.Spec.Replicas) > 0 || t.Status.Replicas > 0
	case *appsv1.ReplicaSet:
		return orOne(t.Spec.Replicas) > 0 || t.Status.Replicas > 0
	}
	return true
}
