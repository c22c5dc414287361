package propertytest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// hardened is a copy of the pod that requires what the pod prefers: of node affinity the heaviest preference and one
// alternative of what is required, of everything else all.
func (m *plainPlanner) hardened(pod *corev1.Pod) *corev1.Pod {
	hard := pod.DeepCopy()
	respect := m.s.Settings.PreferencePolicy != snapshot.PreferencesIgnore
	for i := range hard.Spec.TopologySpreadConstraints {
		if t := &hard.Spec.TopologySpreadConstraints[i]; respect {
			t.WhenUnsatisfiable = corev1.DoNotSchedule
		}
	}
	a := hard.Spec.Affinity
	if a == nil {
		return hard
	}
	if n := a.NodeAffinity; n != nil {
		preferred := heaviestTerms(n.PreferredDuringSchedulingIgnoredDuringExecution)
		n.PreferredDuringSchedulingIgnoredDuringExecution = nil
		if respect && len(preferred) > 0 {
			requireToo(n, preferred[0].Preference)
		}
		if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			terms := &n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			*terms = (*terms)[:min(1, len(*terms))]
		}
	}
	if p := a.PodAffinity; p != nil {
		for _, t := range p.PreferredDuringSchedulingIgnoredDuringExecution {
			if respect {
				p.RequiredDuringSchedulingIgnoredDuringExecution = append(p.RequiredDuringSchedulingIgnoredDuringExecution, t.PodAffinityTerm)
			}
		}
		p.PreferredDuringSchedulingIgnoredDuringExecution = nil
	}
	if p := a.PodAntiAffinity; p != nil {
		for _, t := range p.PreferredDuringSchedulingIgnoredDuringExecution {
			if respect {
				p.RequiredDuringSchedulingIgnoredDuringExecution = append(p.RequiredDuringSchedulingIgnoredDuringExecution, t.PodAffinityTerm)
			}
		}
		p.PreferredDuringSchedulingIgnoredDuringExecution = nil
	}
	return hard
}

// requireToo adds a preference to the first alternative of what is required.
func requireToo(n *corev1.NodeAffinity, term corev1.NodeSelectorTerm) {
	if n.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		n.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}
		return
	}
	if terms := n.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms) > 0 {
		terms[0].MatchExpressions = slices.Concat(terms[0].MatchExpressions, term.MatchExpressions)
	}
}

func heaviestTerms(terms []corev1.PreferredSchedulingTerm) []corev1.PreferredSchedulingTerm {
	out := slices.Clone(terms)
	slices.SortStableFunc(out, func(a, b corev1.PreferredSchedulingTerm) int { return int(b.Weight) - int(a.Weight) })
	return out
}

// dropAlternative drops the first alternative of required node affinity; false if no other is left.
func dropAlternative(p *corev1.Pod) bool {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := &a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(*terms) < 2 {
		return false
	}
	*terms = (*terms)[1:]
	return true
}

// relax drops one preference of the pod; false if none is left.
func (m *plainPlanner) relax(p *corev1.Pod) bool {
	respect := m.s.Settings.PreferencePolicy != snapshot.PreferencesIgnore
	if a := p.Spec.Affinity; a != nil {
		if n := a.PodAffinity; respect && n != nil && dropHeaviest(&n.PreferredDuringSchedulingIgnoredDuringExecution) {
			return true
		}
		if n := a.PodAntiAffinity; respect && n != nil && dropHeaviest(&n.PreferredDuringSchedulingIgnoredDuringExecution) {
			return true
		}
		if n := a.NodeAffinity; respect && n != nil && len(n.PreferredDuringSchedulingIgnoredDuringExecution) > 0 {
			n.PreferredDuringSchedulingIgnoredDuringExecution = heaviestTerms(n.PreferredDuringSchedulingIgnoredDuringExecution)[1:]
			return true
		}
	}
	list := p.Spec.TopologySpreadConstraints
	soft := func(t corev1.TopologySpreadConstraint) bool { return t.WhenUnsatisfiable == corev1.ScheduleAnyway }
	if i := slices.IndexFunc(list, soft); respect && i >= 0 {
		list[i] = list[len(list)-1]
		p.Spec.TopologySpreadConstraints = list[:len(list)-1]
		return true
	}
	blanket := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectPreferNoSchedule}
	if slices.Contains(p.Spec.Tolerations, blanket) || !slices.ContainsFunc(m.pools, func(pool *snapshot.Pool) bool {
		return slices.ContainsFunc(pool.NodePool.Spec.Template.Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectPreferNoSchedule
		})
	}) {
		return false
	}
	p.Spec.Tolerations = append(p.Spec.Tolerations, blanket)
	return true
}

func dropHeaviest(terms *[]corev1.WeightedPodAffinityTerm) bool {
	if len(*terms) == 0 {
		return false
	}
	slices.SortStableFunc(*terms, func(a, b corev1.WeightedPodAffinityTerm) int { return int(b.Weight) - int(a.Weight) })
	*terms = (*terms)[1:]
	return true
}
