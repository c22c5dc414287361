package requirement

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Labels parses API objects with a vocabulary: what label keys mean in this cluster. It is data. Core Kubernetes, the
// NodePool API and the cloud each contribute, and the caller that builds a snapshot provides it.
type Labels struct {
	karpv1.Vocabulary
	// Lacking is LackedBy of the nodes that have joined.
	Lacking map[string][]string
}

// CoreLabels has only the keys that every cluster has, whatever its cloud.
func CoreLabels() Labels { return Labels{Vocabulary: karpv1.CoreVocabulary()} }

// Parse builds the requirement with this key, operator and values, under its canonical key. See New for what it
// rejects.
func (l Labels) Parse(key string, op corev1.NodeSelectorOperator, values ...string) (Requirement, error) {
	return New(l.Normalize(key), op, values...)
}

// FromLabels parses labels of a node, or a pod's nodeSelector, each as "key In [value]".
func (l Labels) FromLabels(labels map[string]string) Set {
	reqs := make([]Requirement, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		reqs = append(reqs, In(l.Normalize(k), labels[k]))
	}
	return NewSet(reqs...)
}

// FromNode parses the labels of an existing node. Where a node has a key and its alias with different values, the value
// of the canonical key counts.
func (l Labels) FromNode(labels map[string]string) Set {
	type label struct{ key, name string }
	found := make([]label, 0, len(labels))
	for name := range labels {
		key := l.Normalize(name)
		if _, shadowed := labels[key]; shadowed && key != name {
			continue
		}
		found = append(found, label{key, name})
	}
	slices.SortFunc(found, func(a, b label) int { return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.name, b.name)) })
	list, values := make([]Requirement, 0, len(found)), make([]string, len(found))
	for i, f := range found {
		if i+1 < len(found) && found[i+1].key == f.key {
			continue // of several aliases without the canonical key, the last counts
		}
		values[i] = labels[f.name]
		list = append(list, Requirement{key: f.key, values: values[i : i+1 : i+1]})
	}
	return Set{list: list}
}

// FromExpressions parses the conjunction of match expressions of a node selector term.
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

// FromTerm parses a term of node affinity: the conjunction of its expressions and of its fields. The only field is the name
// of the Node, which no new node has yet.
func (l Labels) FromTerm(term corev1.NodeSelectorTerm) (Set, error) {
	set, err := l.FromExpressions(term.MatchExpressions)
	if err != nil {
		return Set{}, err
	}
	set = l.notOn(set, present(term.MatchExpressions))
	reqs := make([]Requirement, 0, len(term.MatchFields))
	for _, f := range term.MatchFields {
		switch {
		case f.Key != metav1.ObjectNameField:
			return Set{}, fmt.Errorf("field %s is no field that nodes are matched by", shown(f.Key))
		case len(f.Values) != 1:
			return Set{}, fmt.Errorf("field %s needs exactly one value, has %d", f.Key, len(f.Values))
		case f.Operator == corev1.NodeSelectorOpIn:
			reqs = append(reqs, In(FieldName, f.Values...))
		case f.Operator == corev1.NodeSelectorOpNotIn:
			reqs = append(reqs, NotIn(FieldName, f.Values...))
		default:
			return Set{}, fmt.Errorf("field %s: unknown operator %q", f.Key, f.Operator)
		}
	}
	return set.With(reqs...), nil
}

// present are the keys of the expressions that hold only where the label is.
func present(exprs []corev1.NodeSelectorRequirement) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range exprs {
			op := exprs[i].Operator
			if op != corev1.NodeSelectorOpNotIn && op != corev1.NodeSelectorOpDoesNotExist && !yield(exprs[i].Key) {
				return
			}
		}
	}
}

// FromTopologyTerm parses one of the alternatives of a storage class's allowed topologies.
func (l Labels) FromTopologyTerm(term corev1.TopologySelectorTerm) Set {
	reqs := make([]Requirement, 0, len(term.MatchLabelExpressions))
	for _, e := range term.MatchLabelExpressions {
		r, err := l.Parse(e.Key, corev1.NodeSelectorOpIn, e.Values...)
		if err = cmp.Or(err, valid(e.Key, e.Values...)); err != nil {
			r = DoesNotExist(l.Normalize(e.Key)) // no value allowed: nothing satisfies the term
		}
		reqs = append(reqs, r)
	}
	return l.notOn(NewSet(reqs...), func(yield func(string) bool) {
		for i := range term.MatchLabelExpressions {
			if !yield(term.MatchLabelExpressions[i].Key) {
				return
			}
		}
	})
}

// Pod describes what a pod requires of a node's labels, without topology and volumes.
type Pod struct {
	// Selector is the nodeSelector.
	Selector Set
	// Required are the alternatives of required node affinity, in order; one of them must hold. Nil without required
	// affinity; empty when no alternative can be satisfied.
	Required []Set
	// Preferred are the alternatives of preferred node affinity, heaviest first, in order among equals.
	Preferred []Set
	// Ignored describes the terms that are left out because no node can match them.
	Ignored []string
}

// weightedSet is a term of preferred node affinity.
type weightedSet struct {
	weight int32
	set    Set
}

// FromPod parses nodeSelector and node affinity. A required term with keys or values that no node can have is left out, as
// kube-scheduler does; it is an error if there are no other terms. Such a preferred term is left out.
func (l Labels) FromPod(pod *corev1.PodSpec) (Pod, error) {
	for _, k := range slices.Sorted(maps.Keys(pod.NodeSelector)) {
		if err := valid(k, pod.NodeSelector[k]); err != nil {
			return Pod{}, fmt.Errorf("nodeSelector: %w", err)
		}
	}
	out := Pod{Selector: l.notOn(l.FromLabels(pod.NodeSelector), maps.Keys(pod.NodeSelector))}
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return out, nil
	}
	affinity := pod.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		out.Required = []Set{}
		var first error
		for i, term := range required.NodeSelectorTerms {
			if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
				continue // an empty term matches no node
			}
			s, err := l.FromTerm(term)
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
	var preferred []weightedSet
	for i, t := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		s, err := l.FromTerm(t.Preference)
		if err != nil {
			out.Ignored = append(out.Ignored, fmt.Sprintf("preferred node affinity term %d: %v", i, err))
			continue
		}
		preferred = append(preferred, weightedSet{t.Weight, s})
	}
	slices.SortStableFunc(preferred, func(a, b weightedSet) int { return cmp.Compare(b.weight, a.weight) })
	for _, t := range preferred {
		out.Preferred = append(out.Preferred, t.set)
	}
	return out, nil
}

// maxKey is the longest label key that the schema of a NodeClaim accepts.
const maxKey = 316

// valid checks a label that a pod requires. The API server accepts any values in preferred terms, but no node and no
// NodeClaim can have such a label, and kube-scheduler ignores such a term.
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

// shown quotes as much of a text as fits in an event.
func shown(text string) string {
	const most = 80
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:most]) + "..."
}
