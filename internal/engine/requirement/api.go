package requirement

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// API returns the set as requirements of a NodeClaim, sorted by key. A key with bounds and excluded values, or one that
// must exist and excludes some values, takes several entries.
func (s Set) API() []karpv1.Requirement {
	out := make([]karpv1.Requirement, 0, len(s.list))
	for _, r := range s.list {
		out = append(out, r.API()...)
	}
	return out
}

// API returns r as a conjunction of entries of a NodeClaim's requirements.
func (r Requirement) API() []karpv1.Requirement {
	var out []karpv1.Requirement
	add := func(op corev1.NodeSelectorOperator, values ...string) {
		entry := karpv1.Requirement{Key: r.key, Operator: op, Values: values}
		if r.minValues > 0 {
			n := r.minValues
			entry.MinValues = &n
		}
		out = append(out, entry)
	}
	if r.hasMin {
		add(karpv1.OperatorGte, strconv.FormatInt(r.min, 10))
	}
	if r.hasMax {
		add(karpv1.OperatorLte, strconv.FormatInt(r.max, 10))
	}
	switch op := r.Operator(); {
	case op == corev1.NodeSelectorOpExists && len(out) > 0: // the bounds imply it
	case op == corev1.NodeSelectorOpNotIn && r.present && len(out) == 0:
		add(corev1.NodeSelectorOpExists)
		add(op, r.values...)
	default:
		add(op, r.values...)
	}
	return out
}

// FromAPI parses requirements of a NodePool or NodeClaim.
func (l Labels) FromAPI(reqs []karpv1.Requirement) (Set, error) {
	out := make([]Requirement, 0, len(reqs))
	for i, e := range reqs {
		r, err := l.Parse(e.Key, e.Operator, e.Values...)
		if err != nil {
			return Set{}, fmt.Errorf("requirement %d: %w", i, err)
		}
		if e.MinValues != nil {
			r = r.WithMinValues(*e.MinValues)
		}
		out = append(out, r)
	}
	return NewSet(out...), nil
}

// FromPool parses what a NodePool guarantees of its nodes' labels: its requirements, the labels of its template, its
// name and its node class (a label's key and value).
func (l Labels) FromPool(pool *karpv1.NodePool, nodeClass [2]string) (Set, error) {
	reqs, err := l.FromAPI(pool.Spec.Template.Spec.Requirements)
	if err != nil {
		return Set{}, err
	}
	own := []Requirement{In(karpv1.LabelNodePool, pool.Name)}
	if nodeClass[0] != "" {
		own = append(own, In(nodeClass[0], nodeClass[1]))
	}
	return reqs.Intersect(l.FromLabels(pool.Spec.Template.Labels)).With(own...), nil
}
