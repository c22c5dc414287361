package requirement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

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
		if err := valid(e.Key, e.Values...); err != nil {
			return Set{}, err
		}
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
		if err = cmp.Or(err, valid(e.Key, e.Values...)); err != nil {
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
	// Ignored says of the terms that are left out because no node can match them what is wrong with each.
	Ignored []string
}

// FromPod reads nodeSelector and node affinity. A required term that matches on fields is an error, and so are terms that no node can
// match for what their keys and values are, if there are no others: these the scheduler passes over. A preferred term
// is left out.
func (l Labels) FromPod(pod *corev1.PodSpec) (Pod, error) {
	for _, k := range slices.Sorted(maps.Keys(pod.NodeSelector)) {
		if err := valid(k, pod.NodeSelector[k]); err != nil {
			return Pod{}, fmt.Errorf("nodeSelector: %w", err)
		}
	}
	out := Pod{Selector: l.FromLabels(pod.NodeSelector)}
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return out, nil
	}
	affinity := pod.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		out.Required = []Set{}
		var first error
		for i, term := range required.NodeSelectorTerms {
			if len(term.MatchFields) > 0 {
				return Pod{}, fmt.Errorf("required node affinity term %d matches on fields, which only exist on a node", i)
			}
			if len(term.MatchExpressions) == 0 {
				continue // an empty term matches no node
			}
			s, err := l.FromExpressions(term.MatchExpressions)
			if err != nil {
				err = fmt.Errorf("required node affinity term %d: %w", i, err)
				first = cmp.Or(first, err)
				out.Ignored = append(out.Ignored, err.Error())
				continue
			}
			out.Required = append(out.Required, s)
		}
		if len(out.Required) == 0 && first != nil {
			return Pod{}, first
		}
	}
	type term struct {
		weight int32
		set    Set
	}
	var preferred []term
	for i, t := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if len(t.Preference.MatchFields) > 0 {
			continue
		}
		s, err := l.FromExpressions(t.Preference.MatchExpressions)
		if err != nil {
			out.Ignored = append(out.Ignored, fmt.Sprintf("preferred node affinity term %d: %v", i, err))
			continue
		}
		preferred = append(preferred, term{t.Weight, s})
	}
	slices.SortStableFunc(preferred, func(a, b term) int { return cmp.Compare(b.weight, a.weight) })
	for _, t := range preferred {
		out.Preferred = append(out.Preferred, t.set)
	}
	return out, nil
}

// maxKey is how long a label key may be that a NodeClaim names.
const maxKey = 316

// valid says what is wrong with a label that a pod asks for. The API server lets preferred terms have any values; a node with such a
// label cannot be, nor a NodeClaim that names it, and the scheduler reads no term that has one.
func valid(key string, values ...string) error {
	if why := validation.IsQualifiedName(key); len(why) > 0 {
		return fmt.Errorf("label %s is no valid label key: %s", shown(key), why[0])
	}
	if len(key) > maxKey {
		return fmt.Errorf("label %s is longer than the %d characters that a NodeClaim can name", shown(key), maxKey)
	}
	for _, v := range values {
		if why := validation.IsValidLabelValue(v); len(why) > 0 {
			return fmt.Errorf("label %q: no node can have the value %s: %s", key, shown(v), why[0])
		}
	}
	return nil
}

// shown quotes as much of a text as there is room for in an event.
func shown(text string) string {
	const most = 80
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:most]) + "..."
}
