package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Bounds on what one pod can require and prefer. An API object holds some 10,000 terms, and each costs time for every
// pod that is planned with it. Without bounds one pod delays all others. Pods that people write have a few terms, so
// the bounds are several times that, and the tests with 10,000 terms stay within a normal planning pass.
const (
	// MaxSoftTerms is how many preferences of each sort (preferred node affinity, preferred pod affinity, preferred pod
	// anti-affinity, spreads with ScheduleAnyway) are dropped one by one. The rest, the lightest ones, are a single
	// preference: they are respected together, or dropped together before all others.
	MaxSoftTerms = 32
	// MaxRequiredTerms bounds the required pod affinity terms, and the spreads with DoNotSchedule, of a pod; a pod with
	// more is not planned. Required anti-affinity terms beyond it are joined per topology key, which is equivalent.
	MaxRequiredTerms = topology.MaxTerms
	// MaxAlternatives is how many terms of required node affinity are considered, the first ones: a node needs to match
	// only one.
	MaxAlternatives = 64
	// fewTerms is the number of terms, tolerations or ports up to which a pod is ordinary. Pods with more come last in
	// the queue.
	fewTerms = 16
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
func tooMany(pod *corev1.Pod) Reason {
	hard := hardSpreads(pod)
	no := func(n int, what string) Reason {
		return Reason{
			Code:    TooComplex,
			Message: fmt.Sprintf("the pod has %d %s, and no more than %d are planned; use fewer terms", n, what, MaxRequiredTerms),
		}
	}
	if hard > MaxRequiredTerms {
		return no(hard, "topology spread constraints with DoNotSchedule")
	}
	if n := len(requiredAffinity(pod)); n > MaxRequiredTerms {
		return no(n, "terms of required pod affinity")
	}
	keys := map[string]bool{}
	for _, term := range topology.RequiredAntiAffinity(pod) {
		keys[term.TopologyKey] = true
	}
	if len(keys) > MaxRequiredTerms {
		return no(len(keys), "topology keys in required pod anti-affinity")
	}
	return Reason{}
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
func (sv *solver) terms(pod *corev1.Pod, node requirement.Pod, respect bool) terms {
	var t terms
	of := topology.SpreadPod{Pod: pod, Node: node, Tolerations: sv.tolerations(pod)}
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
		t.spread, t.soft = append(t.spread, sv.topology.Spread(of, c)), append(t.soft, !hard)
	}
	if len(soft) > MaxSoftTerms {
		// No two spreads of a pod have a topology key in common, so they cannot be joined.
		for _, c := range soft[MaxSoftTerms:min(len(soft), 2*MaxSoftTerms)] {
			t.joinedPreferences = append(t.joinedPreferences, sv.topology.Spread(of, c))
		}
	}
	if a := pod.Spec.Affinity; a != nil && respect {
		if a.PodAffinity != nil {
			preferred := a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
			t.affinity = sv.softTerms(topology.Affinity, pod, preferred, &t.joinedPreferences)
		}
		if a.PodAntiAffinity != nil {
			preferred := a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
			t.anti = sv.softTerms(topology.AntiAffinity, pod, preferred, &t.joinedPreferences)
		}
	}
	for i := range requiredAffinity(pod) {
		t.hard = append(t.hard, sv.topology.Affinity(topology.Affinity, pod, &requiredAffinity(pod)[i]))
	}
	t.hard = append(t.hard, sv.topology.Apart(topology.AntiAffinity, pod)...)
	t.hard = append(t.hard, sv.sharedGroups(pod)...)
	return t
}

// softTerms are the groups of the heaviest terms; those of the others are appended to rest.
func (sv *solver) softTerms(
	typ topology.Type, pod *corev1.Pod, list []corev1.WeightedPodAffinityTerm, rest *[]*topology.Group,
) []*topology.Group {
	list = heaviestFirst(list)
	var out []*topology.Group
	for i := range list[:min(len(list), MaxSoftTerms)] {
		out = append(out, sv.topology.Affinity(typ, pod, &list[i].PodAffinityTerm))
	}
	if len(list) > MaxSoftTerms {
		others := make([]*corev1.PodAffinityTerm, 0, len(list))
		for i := range list[MaxSoftTerms:] {
			others = append(others, &list[MaxSoftTerms+i].PodAffinityTerm)
		}
		joined := sv.topology.Joined(typ, pod, others)
		*rest = append(*rest, joined[:min(len(joined), MaxSoftTerms)]...)
	}
	return out
}

// tolerations are those of the pod. If there are many, it is one for each taint in the cluster.
func (sv *solver) tolerations(pod *corev1.Pod) []corev1.Toleration {
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
	note(sv.taints())
	var out []corev1.Toleration
	for _, i := range slices.Sorted(maps.Keys(used)) {
		out = append(out, all[i])
	}
	return out
}

// fewTolerations is how many tolerations are used as they are.
const fewTolerations = 64

// taints are all taints of nodes and pools.
func (sv *solver) taints() []corev1.Taint {
	if sv.allTaints == nil {
		seen := map[corev1.Taint]bool{}
		add := func(list []corev1.Taint) {
			for _, t := range list {
				t.TimeAdded = nil
				seen[t] = true
			}
		}
		for _, n := range sv.nodes {
			add(n.src.Taints)
		}
		for _, t := range sv.pools.All() {
			add(t.Taints())
		}
		sv.allTaints = slices.SortedFunc(maps.Keys(seen), func(a, b corev1.Taint) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
		})
	}
	return sv.allTaints
}

// hasManyTerms reports whether the pods have so many terms that they come last in the queue, with a step budget of
// their own.
func (k *constraintClass) hasManyTerms() bool {
	spec := &k.pod.Spec
	n := max(
		len(spec.TopologySpreadConstraints),
		len(topology.RequiredAntiAffinity(k.pod)),
		len(requiredAffinity(k.pod)),
		len(k.node.Required),
		len(k.node.Preferred),
	)
	if a := spec.Affinity; a != nil {
		if a.PodAffinity != nil {
			n = max(n, len(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution))
		}
		if a.PodAntiAffinity != nil {
			n = max(n, len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution))
		}
	}
	large := max(k.ports.Len(), len(spec.Tolerations), len(k.attached), k.node.Selector.Len())
	for _, term := range k.node.Required {
		large = max(large, term.Len())
	}
	return n > fewTerms || large > fewTolerations
}

// labelsPerStep is how many label comparisons count as one step.
const labelsPerStep = 16

// labelSteps is how many steps it takes to compare the labels of a node with the requirements of the level.
func (level *relaxationLevel) labelSteps() int { return level.full.Len() / labelsPerStep }
