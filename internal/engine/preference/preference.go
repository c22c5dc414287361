// Package preference lists what a pod prefers, each preference in words, and in which order preferences are dropped.
// Preferences are terms of preferred node affinity, pod affinity and pod anti-affinity, and topology spreads with
// ScheduleAnyway.
package preference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// List describes what a pod prefers, in the order in which it is dropped.
type List struct {
	// Texts are the preferences in words.
	Texts []string
	// firstNode and nodes are the place and the number of the terms of preferred node affinity.
	firstNode, nodes int
}

// Of lists what the pod prefers. The order is that of Karpenter: pod affinity, pod anti-affinity and node affinity, each
// with the heaviest term first, then spreads.
func Of(pod *corev1.PodSpec, node requirement.Pod) List {
	var l List
	if a := pod.Affinity; a != nil && a.PodAffinity != nil {
		for _, t := range heaviestFirst(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution) {
			l.Texts = append(l.Texts, fmt.Sprintf("the same %s as pods with %s", t.PodAffinityTerm.TopologyKey, selector(&t)))
		}
	}
	if a := pod.Affinity; a != nil && a.PodAntiAffinity != nil {
		for _, t := range heaviestFirst(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) {
			l.Texts = append(l.Texts, fmt.Sprintf("another %s than pods with %s", t.PodAffinityTerm.TopologyKey, selector(&t)))
		}
	}
	l.firstNode, l.nodes = len(l.Texts), len(node.Preferred)
	for _, set := range node.Preferred {
		words := make([]string, 0, set.Len())
		for _, r := range set.All() {
			words = append(words, wording.Requirement(r))
		}
		l.Texts = append(l.Texts, "nodes with "+strings.Join(words, ", "))
	}
	for _, c := range softSpreads(pod.TopologySpreadConstraints) {
		l.Texts = append(l.Texts, fmt.Sprintf("spread over %s with a skew of at most %d", c.TopologyKey, c.MaxSkew))
	}
	return l
}

// Fate describes what becomes of a preference.
type Fate int

const (
	// Dropped preferences are given up.
	Dropped Fate = iota
	// Kept preferences are kept.
	Kept
	// Covered terms of node affinity do not matter, since a heavier one is kept.
	Covered
)

// Fate returns what becomes of preference i where only the last ones are kept, in number as given.
func (l *List) Fate(i, kept int) Fate {
	first := len(l.Texts) - kept
	switch {
	case i < first:
		return Dropped
	case i >= l.firstNode && i < l.firstNode+l.nodes && i > max(first, l.firstNode):
		return Covered
	}
	return Kept
}

func heaviestFirst(terms []corev1.WeightedPodAffinityTerm) []corev1.WeightedPodAffinityTerm {
	out := slices.Clone(terms)
	slices.SortStableFunc(out, func(a, b corev1.WeightedPodAffinityTerm) int { return cmp.Compare(b.Weight, a.Weight) })
	return out
}

func selector(t *corev1.WeightedPodAffinityTerm) string {
	return metav1.FormatLabelSelector(t.PodAffinityTerm.LabelSelector)
}

// softSpreads are the spreads with ScheduleAnyway in the order in which they are dropped: the first of all is dropped,
// and the last of all takes its place.
func softSpreads(all []corev1.TopologySpreadConstraint) (out []corev1.TopologySpreadConstraint) {
	left := slices.Clone(all)
	soft := func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable != corev1.DoNotSchedule }
	for i := slices.IndexFunc(left, soft); i >= 0; i = slices.IndexFunc(left, soft) {
		out = append(out, left[i])
		left[i] = left[len(left)-1]
		left = left[:len(left)-1]
	}
	return out
}
