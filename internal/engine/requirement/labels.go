package requirement

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Labels reads API objects with a vocabulary: what label keys mean in this cluster. It is data; core
// Kubernetes, the node pool API and the cloud each contribute, and whoever builds a snapshot hands it in.
type Labels struct {
	karpv1.Vocabulary
}

// CoreLabels knows only the keys that every cluster has, whatever its cloud.
func CoreLabels() Labels { return Labels{karpv1.CoreVocabulary()} }

// Parse builds the requirement that an API object spells as key, operator and values, under its canonical
// key. See New for what it refuses.
func (l Labels) Parse(key string, op corev1.NodeSelectorOperator, values ...string) (Requirement, error) {
	return New(l.Normalize(key), op, values...)
}

// FromLabels reads labels of a node, or a pod's nodeSelector, each as "key In [value]".
func (l Labels) FromLabels(labels map[string]string) Set {
	reqs := make([]Requirement, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		reqs = append(reqs, In(l.Normalize(k), labels[k]))
	}
	return NewSet(reqs...)
}

// FromNode reads the labels of a node that exists. Where it carries a key and its alias with different
// values, the canonical key's value holds.
func (l Labels) FromNode(labels map[string]string) Set {
	canonical := make(map[string]string, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		key := l.Normalize(k)
		if _, shadowed := labels[key]; shadowed && key != k {
			continue
		}
		canonical[key] = labels[k]
	}
	return FromExactLabels(canonical)
}

// FromExpressions reads the conjunction of match expressions of a node selector term.
func (l Labels) FromExpressions(exprs []corev1.NodeSelectorRequirement) (Set, error) {
	reqs := make([]Requirement, 0, len(exprs))
	for _, e := range exprs {
		r, err := l.Parse(e.Key, e.Operator, e.Values...)
		if err != nil {
			return Set{}, err
		}
		reqs = append(reqs, r)
	}
	return NewSet(reqs...), nil
}

// FromTopologyTerm reads one of the alternatives of a storage class's allowed topologies.
func (l Labels) FromTopologyTerm(term corev1.TopologySelectorTerm) Set {
	reqs := make([]Requirement, 0, len(term.MatchLabelExpressions))
	for _, e := range term.MatchLabelExpressions {
		r, err := l.Parse(e.Key, corev1.NodeSelectorOpIn, e.Values...)
		if err != nil {
			r = DoesNotExist(l.Normalize(e.Key)) // no value allowed: nothing satisfies the term
		}
		reqs = append(reqs, r)
	}
	return NewSet(reqs...)
}

// Pod is what a pod requires of a node's labels, apart from topology and volumes.
type Pod struct {
	// Selector is the nodeSelector.
	Selector Set
	// Required are the alternatives of required node affinity, in their order; one of them must hold.
	// Nil when there is no required affinity; empty when there is but nothing can satisfy it.
	Required []Set
	// Preferred are the alternatives of preferred node affinity, heaviest first, in their order among equals.
	Preferred []Set
}

// FromPod reads nodeSelector and node affinity. A required term that matches on fields or cannot be parsed
// is an error; a preferred one is left out, as the scheduler leaves it out of its score.
func (l Labels) FromPod(pod *corev1.PodSpec) (Pod, error) {
	out := Pod{Selector: l.FromLabels(pod.NodeSelector)}
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return out, nil
	}
	affinity := pod.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		out.Required = []Set{}
		for i, term := range required.NodeSelectorTerms {
			if len(term.MatchFields) > 0 {
				return Pod{}, fmt.Errorf("required node affinity term %d matches on fields, which only exist on a node", i)
			}
			if len(term.MatchExpressions) == 0 {
				continue // an empty term matches no node
			}
			s, err := l.FromExpressions(term.MatchExpressions)
			if err != nil {
				return Pod{}, fmt.Errorf("required node affinity term %d: %w", i, err)
			}
			out.Required = append(out.Required, s)
		}
	}
	preferred := slices.Clone(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
	slices.SortStableFunc(preferred, func(a, b corev1.PreferredSchedulingTerm) int { return int(b.Weight) - int(a.Weight) })
	for _, term := range preferred {
		if len(term.Preference.MatchFields) > 0 {
			continue
		}
		if s, err := l.FromExpressions(term.Preference.MatchExpressions); err == nil {
			out.Preferred = append(out.Preferred, s)
		}
	}
	return out, nil
}
