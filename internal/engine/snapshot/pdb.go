package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Budget is a PodDisruptionBudget with its selector compiled.
type Budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

// Budgets compiles PodDisruptionBudgets; one with an invalid selector selects nothing.
func Budgets(pdbs []*policyv1.PodDisruptionBudget) []Budget {
	out := make([]Budget, 0, len(pdbs))
	for _, p := range pdbs {
		selector, err := metav1.LabelSelectorAsSelector(p.Spec.Selector)
		if err != nil {
			selector = labels.Nothing()
		}
		out = append(out, Budget{p, selector})
	}
	return out
}

// Selects reports whether the budget selects the pod.
func (b Budget) Selects(p *corev1.Pod) bool {
	return b.Namespace == p.Namespace && b.selector.Matches(labels.Set(p.Labels))
}

// Blocks reports whether the budget currently blocks the eviction of the pod.
func (b Budget) Blocks(p *corev1.Pod) bool {
	return b.Status.DisruptionsAllowed == 0 && !b.waivedFor(p)
}

// waivedFor reports whether the pod, being unhealthy, may be evicted whatever the budget allows.
func (b Budget) waivedFor(p *corev1.Pod) bool {
	return b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow &&
		podReady(p) == corev1.ConditionFalse
}

// neverAllows reports whether the budget can never allow an eviction, whatever the state of the workload.
func (b Budget) neverAllows() bool {
	if m := b.Spec.MaxUnavailable; m != nil && (m.Type == intstr.Int && m.IntVal == 0 || m.Type == intstr.String && m.StrVal == "0%") {
		return true
	}
	m := b.Spec.MinAvailable
	switch {
	case m == nil:
		return false
	case m.Type == intstr.String:
		return m.StrVal == "100%"
	}
	// minAvailable of all expected pods. It does not count before the disruption controller has counted them.
	expected := b.Status.ExpectedPods
	return expected > 0 && b.Status.ObservedGeneration == b.Generation && m.IntVal >= expected
}
