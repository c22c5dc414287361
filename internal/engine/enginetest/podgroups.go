package enginetest

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// InGroup has the pod name a PodGroup of its namespace.
func InGroup(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name} }
}

// Gang returns a PodGroup of namespace default that needs so many pods at the same time; edit changes it.
func Gang(name string, minCount int32, edit ...func(*schedulingv1beta1.PodGroup)) *schedulingv1beta1.PodGroup {
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}
	for _, e := range edit {
		e(g)
	}
	return g
}

// GroupKey has all pods of the group in one value of a node label.
func GroupKey(key string) func(*schedulingv1beta1.PodGroup) {
	return func(g *schedulingv1beta1.PodGroup) {
		g.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{
			Topology: []schedulingv1beta1.TopologyConstraint{{Key: key}},
		}
	}
}

// WithGroups adds PodGroups to a snapshot, each with the pods of the snapshot that name it.
func WithGroups(s *snapshot.Snapshot, groups ...*schedulingv1beta1.PodGroup) *snapshot.Snapshot {
	pods := slices.Clone(s.Pods)
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Pods {
			if !slices.ContainsFunc(pods, func(o *corev1.Pod) bool { return o.UID == p.UID }) {
				pods = append(pods, p)
			}
		}
	}
	for _, g := range groups {
		entry := snapshot.PodGroup{Namespace: g.Namespace, Name: g.Name, Object: g}
		for _, p := range pods {
			if name, in := snapshot.PodGroupOf(p); in && name.Namespace == g.Namespace && name.Name == g.Name {
				entry.Members = append(entry.Members, p)
			}
		}
		s.PodGroups = append(s.PodGroups, entry)
	}
	slices.SortFunc(s.PodGroups, func(a, b snapshot.PodGroup) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}
