package podclass

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Bounds on what one pod can require and prefer. An API object holds some 10,000 terms, and each costs time for every
// pod that is planned with it. Without bounds one pod delays all others. Pods that people write have a few terms, so
// the bounds are several times that, and the tests with 10,000 terms stay within a normal planning pass.
const (
	// MaxSoftTerms limits how many preferences of each sort (preferred node affinity, preferred pod affinity, preferred pod
	// anti-affinity, spreads with ScheduleAnyway) are dropped one by one. The rest, the lightest ones, are a single
	// preference: they are respected together, or dropped together before all others.
	MaxSoftTerms = 32
	// MaxRequiredTerms bounds the required pod affinity terms, and the spreads with DoNotSchedule, of a pod; a pod with
	// more is not planned. Required anti-affinity terms beyond it are joined per topology key, which is equivalent.
	MaxRequiredTerms = topology.MaxTerms
	// MaxAlternatives limits how many terms of required node affinity are considered, the first ones: a node needs to match
	// only one.
	MaxAlternatives = 64
	// fewTerms is the number of terms, tolerations or ports up to which a pod is ordinary. Pods with more come last in
	// the queue.
	fewTerms = 16
	// maxLevelGroups bounds the relaxation levels of an ordinary pod times its topology terms: what it takes to check one
	// node for it. Ten preferences of each sort are about three hundred.
	maxLevelGroups = 512
	// maxValues bounds the values that an ordinary pod lists in node affinity.
	maxValues = 512
	// maxManyTermGroups bounds the topology groups of all pods together that have more than fewTerms terms each.
	maxManyTermGroups = 1024
)

// terms are the topology constraints of a pod, as groups.
type terms struct {
	spread            []*topology.Group // with DoNotSchedule and, unless preferences are ignored, ScheduleAnyway
	soft              []bool            // soft marks those of spread with ScheduleAnyway.
	affinity, anti    []*topology.Group // preferred, heaviest first
	hard              []*topology.Group // required affinity, then required anti-affinity
	joinedPreferences []*topology.Group // preferences that are dropped together
}

// tooMany is the reason why a pod has too many required terms to plan; the zero Reason if it has not.
func tooMany(pod *corev1.Pod) rejection.Reason {
	hard := hardSpreads(pod)
	if hard > MaxRequiredTerms {
		return tooComplex(rejection.HardSpreads, hard, MaxRequiredTerms)
	}
	if n := len(requiredAffinity(pod)); n > MaxRequiredTerms {
		return tooComplex(rejection.RequiredPods, n, MaxRequiredTerms)
	}
	keys := map[string]bool{}
	for _, term := range topology.RequiredAntiAffinity(pod) {
		keys[term.TopologyKey] = true
	}
	if len(keys) > MaxRequiredTerms {
		return tooComplex(rejection.AntiAffinity, len(keys), MaxRequiredTerms)
	}
	return rejection.Reason{}
}

// tooComplex is the reason of a pod that exceeds a bound of planning.
func tooComplex(of rejection.BoundOf, count, most int) rejection.Reason {
	return rejection.Reason{
		Code: rejection.TooComplex, Rule: &rejection.Rule{Bound: &rejection.Bound{Of: of, Count: count, Most: most}},
	}
}

// hardSpreads counts the pod's spreads with DoNotSchedule.
func hardSpreads(pod *corev1.Pod) int {
	hard := 0
	for i := range pod.Spec.TopologySpreadConstraints {
		hard += btoi(pod.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable == corev1.DoNotSchedule)
	}
	return hard
}

func requiredAffinity(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// terms returns the groups of the pod's topology constraints.
func (x *Compiler) terms(k *Constraints, respect bool) terms {
	var t terms
	pod, of := k.pod, x.spreadPod(k)
	var soft []*corev1.TopologySpreadConstraint
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		hard := c.WhenUnsatisfiable == corev1.DoNotSchedule
		switch {
		case !hard && !respect:
			continue
		case !hard && len(soft) >= MaxSoftTerms:
			soft = append(soft, c)
			continue
		case !hard:
			soft = append(soft, c)
		}
		t.spread, t.soft = append(t.spread, x.topology.Spread(of, c)), append(t.soft, !hard)
	}
	if len(soft) > MaxSoftTerms {
		// No two spreads of a pod have a topology key in common, so they cannot be joined.
		for _, c := range soft[MaxSoftTerms:min(len(soft), 2*MaxSoftTerms)] {
			t.joinedPreferences = append(t.joinedPreferences, x.topology.Spread(of, c))
		}
	}
	if a := pod.Spec.Affinity; a != nil && respect {
		if a.PodAffinity != nil {
			preferred := a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
			t.affinity = x.softTerms(topology.Affinity, pod, preferred, &t.joinedPreferences)
		}
		if a.PodAntiAffinity != nil {
			preferred := a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
			t.anti = x.softTerms(topology.AntiAffinity, pod, preferred, &t.joinedPreferences)
		}
	}
	t.hard = x.topology.Near(pod, requiredAffinity(pod))
	t.hard = append(t.hard, x.topology.Apart(topology.AntiAffinity, pod)...)
	t.hard = append(t.hard, x.sharedGroups(pod)...)
	return t
}

// softTerms are the groups of the heaviest terms; those of the others are appended to rest.
func (x *Compiler) softTerms(
	typ topology.Type, pod *corev1.Pod, list []corev1.WeightedPodAffinityTerm, rest *[]*topology.Group,
) []*topology.Group {
	list = heaviestFirst(list)
	var out []*topology.Group
	for i := range list[:min(len(list), MaxSoftTerms)] {
		out = append(out, x.topology.Affinity(typ, pod, &list[i].PodAffinityTerm))
	}
	if len(list) > MaxSoftTerms {
		others := make([]*corev1.PodAffinityTerm, 0, len(list))
		for i := range list[MaxSoftTerms:] {
			others = append(others, &list[MaxSoftTerms+i].PodAffinityTerm)
		}
		joined := x.topology.Joined(typ, pod, others)
		*rest = append(*rest, joined[:min(len(joined), MaxSoftTerms)]...)
	}
	return out
}

// hasManyTerms reports whether the pods have so many terms that they come last in the queue, with a step budget of
// their own.
func (k *Constraints) hasManyTerms() bool {
	large := max(k.ports.Len(), len(k.attached), k.node.Selector.Len())
	for _, term := range k.node.Required {
		large = max(large, term.Len())
	}
	return large > fewTolerations || HasManyTerms(k.pod)
}

// HasManyTerms reports whether a pod has so many terms, by its affinity, spread and tolerations, that planning it is bounded.
func HasManyTerms(pod *corev1.Pod) bool {
	spec := &pod.Spec
	n := max(
		len(spec.TopologySpreadConstraints), len(topology.RequiredAntiAffinity(pod)), len(requiredAffinity(pod)), requiredTerms(pod),
	)
	if a := spec.Affinity; a != nil {
		if a.NodeAffinity != nil {
			n = max(n, len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution))
		}
		if a.PodAffinity != nil {
			n = max(n, len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution))
		}
		if a.PodAntiAffinity != nil {
			n = max(n, len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution))
		}
	}
	return n > fewTerms || len(spec.Tolerations) > fewTolerations || levelGroups(pod) > maxLevelGroups || affinityValues(pod) > maxValues
}

// levelGroups returns how many relaxation levels the pod has at most, times the topology terms of each.
func levelGroups(pod *corev1.Pod) int {
	hard := hardSpreads(pod)
	soft := len(pod.Spec.TopologySpreadConstraints) - hard
	levels, groups := 1+soft, hard+soft+len(requiredAffinity(pod))+len(topology.RequiredAntiAffinity(pod))
	if a := pod.Spec.Affinity; a != nil {
		if a.NodeAffinity != nil {
			levels += len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) + 2*requiredTerms(pod)
		}
		prefers := 0
		if a.PodAffinity != nil {
			prefers += len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a.PodAntiAffinity != nil {
			prefers += len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		levels, groups = levels+prefers, groups+prefers
	}
	return levels * groups
}

// affinityValues counts the values in the pod's node affinity.
func affinityValues(pod *corev1.Pod) int {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil {
		return 0
	}
	values := 0
	count := func(list []corev1.NodeSelectorRequirement) {
		for i := range list {
			values += len(list[i].Values)
		}
	}
	if required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			count(required.NodeSelectorTerms[i].MatchExpressions)
		}
	}
	for i := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		count(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference.MatchExpressions)
	}
	return values
}

// labelsPerStep sets how many label comparisons count as one step.
const labelsPerStep = 16

// LabelSteps returns how many steps it takes to compare the labels of a node with the requirements of the level.
func (level *Level) LabelSteps() int { return level.full.Len() / labelsPerStep }

func requiredTerms(pod *corev1.Pod) int {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return len(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	return 0
}

// LeftOut is the reason to add for pods of which not all alternatives of node affinity are considered; else the zero
// Reason.
func (c *Constraints) LeftOut() rejection.Reason {
	n := requiredTerms(c.pod)
	if n <= MaxAlternatives {
		return rejection.Reason{}
	}
	return tooComplex(rejection.RequiredNodes, n, MaxAlternatives)
}
