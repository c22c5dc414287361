package podclass

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// tolerations returns those of the pod. If there are many, it is one for each taint in the cluster.
func (x *Compiler) tolerations(pod *corev1.Pod) []corev1.Toleration {
	all := pod.Spec.Tolerations
	if len(all) <= fewTolerations {
		return all
	}
	used := map[int]bool{}
	note := func(taints []corev1.Taint) {
		for i := range taints {
			at := slices.IndexFunc(all, func(t corev1.Toleration) bool { return snapshot.Tolerates([]corev1.Toleration{t}, &taints[i]) })
			if at >= 0 {
				used[at] = true
			}
		}
	}
	note(x.taints())
	var out []corev1.Toleration
	for _, i := range slices.Sorted(maps.Keys(used)) {
		out = append(out, all[i])
	}
	return out
}

// fewTolerations sets how many tolerations are used as they are.
const fewTolerations = 64

// taints are all taints of nodes and pools.
func (x *Compiler) taints() []corev1.Taint {
	if x.allTaints == nil {
		seen := map[corev1.Taint]bool{}
		add := func(list []corev1.Taint) {
			for _, t := range list {
				t.TimeAdded = nil
				seen[t] = true
			}
		}
		for i := range x.s.Nodes {
			add(x.s.Nodes[i].Taints)
		}
		for _, t := range x.pools.All() {
			add(t.Taints())
		}
		x.allTaints = slices.SortedFunc(maps.Keys(seen), func(a, b corev1.Taint) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
		})
	}
	return x.allTaints
}
