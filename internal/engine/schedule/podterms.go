package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
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
	MaxRequiredTerms = 64
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
	spread            []*group // with DoNotSchedule and, unless preferences are ignored, ScheduleAnyway
	soft              []bool   // soft marks those of spread with ScheduleAnyway.
	affinity, anti    []*group // preferred, heaviest first
	hard              []*group // required affinity, then required anti-affinity
	joinedPreferences []*group // preferences that are dropped together
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
	for _, term := range requiredAnti(pod) {
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
		t.spread, t.soft = append(t.spread, sv.spreadGroup(pod, node, c)), append(t.soft, !hard)
	}
	if len(soft) > MaxSoftTerms {
		// No two spreads of a pod have a topology key in common, so they cannot be joined.
		for _, c := range soft[MaxSoftTerms:min(len(soft), 2*MaxSoftTerms)] {
			t.joinedPreferences = append(t.joinedPreferences, sv.spreadGroup(pod, node, c))
		}
	}
	if a := pod.Spec.Affinity; a != nil && respect {
		if a.PodAffinity != nil {
			t.affinity = sv.softTerms(affinity, pod, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, &t.joinedPreferences)
		}
		if a.PodAntiAffinity != nil {
			t.anti = sv.softTerms(antiAffinity, pod, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, &t.joinedPreferences)
		}
	}
	for i := range requiredAffinity(pod) {
		t.hard = append(t.hard, sv.affinityGroup(affinity, pod, &requiredAffinity(pod)[i]))
	}
	t.hard = append(t.hard, sv.apartGroups(antiAffinity, pod)...)
	t.hard = append(t.hard, sv.sharedGroups(pod)...)
	return t
}

// softTerms are the groups of the heaviest terms; those of the others are appended to rest.
func (sv *solver) softTerms(typ groupType, pod *corev1.Pod, list []corev1.WeightedPodAffinityTerm, rest *[]*group) []*group {
	list = heaviestFirst(list)
	var out []*group
	for i := range list[:min(len(list), MaxSoftTerms)] {
		out = append(out, sv.affinityGroup(typ, pod, &list[i].PodAffinityTerm))
	}
	if len(list) > MaxSoftTerms {
		others := make([]*corev1.PodAffinityTerm, 0, len(list))
		for i := range list[MaxSoftTerms:] {
			others = append(others, &list[MaxSoftTerms+i].PodAffinityTerm)
		}
		joined := sv.joinedGroups(typ, pod, others)
		*rest = append(*rest, joined[:min(len(joined), MaxSoftTerms)]...)
	}
	return out
}

// apartGroups are the groups of the pod's required anti-affinity: antiAffinity for the pod itself, inverse for the pods
// that it keeps out.
func (sv *solver) apartGroups(typ groupType, pod *corev1.Pod) []*group {
	list := requiredAnti(pod)
	if len(list) > MaxRequiredTerms {
		all := make([]*corev1.PodAffinityTerm, len(list))
		for i := range list {
			all[i] = &list[i]
		}
		return sv.joinedGroups(typ, pod, all)
	}
	var out []*group
	for i := range list {
		out = append(out, sv.affinityGroup(typ, pod, &list[i]))
	}
	return out
}

// joinedGroups makes one group per topology key, which counts the pods that any of the terms selects. Keeping away from
// those is equivalent to keeping away from each. Being near any of them is the best that one joined preference can
// express.
func (sv *solver) joinedGroups(typ groupType, pod *corev1.Pod, list []*corev1.PodAffinityTerm) []*group {
	byKey := map[string][]*group{}
	for _, term := range list {
		g := sv.affinityTerm(typ, pod, term)
		byKey[g.key] = append(byKey[g.key], g)
	}
	var out []*group
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		parts := byKey[key]
		if len(parts) == 1 {
			out = append(out, sv.internGroup(parts[0], ""))
			continue
		}
		g := &group{typ: typ, key: key, selector: labels.Nothing(), namespaces: map[string]bool{}, parts: parts}
		var id strings.Builder
		for i, part := range parts {
			fmt.Fprintf(&id, "|%v%v%s", part.allNamespaces, slices.Sorted(maps.Keys(part.namespaces)), part.selector)
			g.lookup.add(i, part.selector)
		}
		out = append(out, sv.internGroup(g, id.String()))
	}
	return out
}

// anyPartSelects reports whether any part of a joined group selects the pod.
func (g *group) anyPartSelects(pod *corev1.Pod) bool {
	return g.lookup.find(pod.Labels, func(i int) bool { return g.parts[i].selects(pod) })
}

// selectorIndex finds the selectors, by number, that may match given labels, without evaluating all of them.
type selectorIndex struct {
	byValue map[string]map[string][]int // selectors that need one of some values of a label
	byKey   map[string][]int            // selectors that need a label
	any     []int                       // all others
}

func (l *selectorIndex) add(i int, s labels.Selector) {
	if l.byValue == nil {
		l.byValue, l.byKey = map[string]map[string][]int{}, map[string][]int{}
	}
	reqs, selectable := s.Requirements()
	if !selectable {
		return // it matches nothing
	}
	for k := range reqs {
		switch reqs[k].Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			key := reqs[k].Key()
			if l.byValue[key] == nil {
				l.byValue[key] = map[string][]int{}
			}
			for v := range reqs[k].Values() {
				l.byValue[key][v] = append(l.byValue[key][v], i)
			}
			return
		}
	}
	for k := range reqs {
		switch reqs[k].Operator() {
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			l.byKey[reqs[k].Key()] = append(l.byKey[reqs[k].Key()], i)
			return
		}
	}
	l.any = append(l.any, i)
}

// find calls is with the number of each selector that may match, until it returns true.
func (l *selectorIndex) find(set map[string]string, is func(i int) bool) bool {
	for key, value := range set {
		if slices.ContainsFunc(l.byValue[key][value], is) || slices.ContainsFunc(l.byKey[key], is) {
			return true
		}
	}
	return slices.ContainsFunc(l.any, is)
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
		len(requiredAnti(k.pod)),
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

// selectorText describes the pods that the group selects.
func (g *group) selectorText() string {
	switch {
	case g.claim != "":
		return fmt.Sprintf("volume claim %q", g.claim)
	case len(g.parts) > 0:
		return fmt.Sprintf("any of %d selectors", len(g.parts))
	}
	return g.selector.String()
}
