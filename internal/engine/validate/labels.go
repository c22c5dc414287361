package validate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// label describes what one label of a node may become: any of values, or none at all. An open one may also be a value that nobody
// knows yet.
type label struct {
	values []string
	absent bool
	open   bool
}

func (l label) single() (string, bool) {
	if l.absent || l.open || len(l.values) != 1 {
		return "", false
	}
	return l.values[0], true
}

func (l *label) add(o label) {
	for _, v := range o.values {
		if !slices.Contains(l.values, v) {
			l.values = append(l.values, v)
		}
	}
	l.absent, l.open = l.absent || o.absent, l.open || o.open
}

// expr is one match expression, with its canonical key, and the key as it is stated.
type expr struct {
	key    string
	stated string
	op     corev1.NodeSelectorOperator
	values []string
	set    map[string]bool // values, where there are many
	number int64           // of the operators that compare
}

// manyValues is from where on a set is faster than looking at each.
const manyValues = 16

func newExpr(key string, op corev1.NodeSelectorOperator, values []string) (expr, error) {
	e := expr{key: key, stated: key, op: op, values: values}
	switch op {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(values) == 0 {
			return e, fmt.Errorf("label %q: operator %s without values", key, op)
		}
		if len(values) >= manyValues {
			e.set = make(map[string]bool, len(values))
			for _, v := range values {
				e.set[v] = true
			}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, karpv1.OperatorGte, karpv1.OperatorLte:
		if len(values) != 1 {
			return e, fmt.Errorf("label %q: operator %s with %d values", key, op, len(values))
		}
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil {
			return e, fmt.Errorf("label %q: operator %s with %q", key, op, values[0])
		}
		e.number = n
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
	default:
		return e, fmt.Errorf("label %q: operator %q", key, op)
	}
	return e, nil
}

func (e *expr) lists(v string) bool {
	if e.set != nil {
		return e.set[v]
	}
	return slices.Contains(e.values, v)
}

// has reports whether the label may have this value.
func (e *expr) has(v string) bool {
	switch e.op {
	case corev1.NodeSelectorOpIn:
		return e.lists(v)
	case corev1.NodeSelectorOpNotIn:
		return !e.lists(v)
	case corev1.NodeSelectorOpExists:
		return true
	case corev1.NodeSelectorOpDoesNotExist:
		return false
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return false
	}
	switch e.op {
	case corev1.NodeSelectorOpGt:
		return n > e.number
	case corev1.NodeSelectorOpLt:
		return n < e.number
	case karpv1.OperatorGte:
		return n >= e.number
	default:
		return n <= e.number
	}
}

// lacks reports whether the label may be missing.
func (e *expr) lacks() bool {
	return e.op == corev1.NodeSelectorOpNotIn || e.op == corev1.NodeSelectorOpDoesNotExist
}

// holds reports whether the expression is true whatever the label becomes, may whether it can be. A value that nobody knows
// is none that a pod has reason to exclude.
func (e *expr) holds(l label) bool {
	if l.open && e.op != corev1.NodeSelectorOpExists && e.op != corev1.NodeSelectorOpNotIn {
		return false
	}
	return !slices.ContainsFunc(l.values, func(v string) bool { return !e.has(v) }) && (!l.absent || e.lacks())
}

func (e *expr) may(l label) bool {
	return l.open && e.op != corev1.NodeSelectorOpDoesNotExist || slices.ContainsFunc(l.values, e.has) || l.absent && e.lacks()
}

// labelDemands describes what a pod requires of a node's labels.
type labelDemands struct {
	selector []expr
	// terms are alternatives, if there is any required affinity: an empty list is satisfied nowhere.
	affinity bool
	terms    [][]expr
	err      error
}

// labelDemandsOf reads nodeSelector and required node affinity, with what the pod's scheduler adds to that: both must hold.
func (c *check) labelDemandsOf(pod *corev1.Pod) *labelDemands {
	added := c.s.Settings.AddedAffinity(&pod.Spec)
	if added == nil || added.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return c.ownLabelDemandsOf(pod)
	}
	if w := c.enforced[pod]; w != nil {
		return w
	}
	w := *c.ownLabelDemandsOf(pod)
	var both [][]expr
	for _, term := range added.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		exprs, err := c.exprs(term.MatchExpressions)
		fields, why := nameFields(term.MatchFields)
		if err = errors.Join(err, why); err != nil {
			w.err = errors.Join(w.err, err)
			continue
		}
		exprs = append(exprs, fields...)
		if !w.affinity {
			both = append(both, exprs)
		}
		for _, own := range w.terms {
			both = append(both, slices.Concat(own, exprs))
		}
	}
	w.affinity, w.terms = true, both
	c.enforced[pod] = &w
	return &w
}

// ownLabelDemandsOf reads the pod's nodeSelector and required node affinity: these decide which nodes a spread counts.
func (c *check) ownLabelDemandsOf(pod *corev1.Pod) *labelDemands {
	if w := c.labelDemands[pod]; w != nil {
		return w
	}
	w := &labelDemands{}
	var unreadable error
	for _, k := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if !validLabel(k, pod.Spec.NodeSelector[k]) {
			w.err = fmt.Errorf("no node can have label %q with value %q", k, pod.Spec.NodeSelector[k])
		}
		w.selector = append(
			w.selector,
			expr{key: c.s.Labels.Normalize(k), stated: k, op: corev1.NodeSelectorOpIn, values: []string{pod.Spec.NodeSelector[k]}},
		)
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		w.affinity = true
		for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
				continue
			}
			exprs, err := c.exprs(t.MatchExpressions)
			if fields, why := nameFields(t.MatchFields); err == nil {
				exprs, err = append(exprs, fields...), why
			}
			if err != nil {
				unreadable = err
				continue
			}
			w.terms = append(w.terms, exprs)
		}
	}
	if unreadable != nil && len(w.terms) == 0 && w.err == nil {
		w.err = unreadable // else the others are what the pod demands
	}
	c.labelDemands[pod] = w
	return w
}

// nodeName stands for the name of the Node object, which is no label.
const nodeName = "the name of the Node"

// nameFields reads what a term requires of fields: kube-scheduler knows one, the name, and compares it with one value.
func nameFields(list []corev1.NodeSelectorRequirement) ([]expr, error) {
	var out []expr
	for _, f := range list {
		if f.Key != "metadata.name" || len(f.Values) != 1 || f.Operator != corev1.NodeSelectorOpIn && f.Operator != corev1.NodeSelectorOpNotIn {
			return nil, fmt.Errorf("field %q: operator %s with %d values", f.Key, f.Operator, len(f.Values))
		}
		out = append(out, expr{key: nodeName, stated: nodeName, op: f.Operator, values: f.Values})
	}
	return out, nil
}

func (c *check) exprs(list []corev1.NodeSelectorRequirement) ([]expr, error) {
	var out []expr
	for _, r := range list {
		if !validLabel(r.Key, r.Values...) {
			return nil, fmt.Errorf("no node can have label %q with one of the values %q", r.Key, r.Values)
		}
		e, err := newExpr(c.s.Labels.Normalize(r.Key), r.Operator, r.Values)
		if err != nil {
			return nil, err
		}
		e.stated = r.Key
		out = append(out, e)
	}
	return out, nil
}

// validLabel reports whether a node can have a label of this key with each of the values.
func validLabel(key string, values ...string) bool {
	return len(key) <= 316 && len(validation.IsQualifiedName(key)) == 0 &&
		!slices.ContainsFunc(values, func(v string) bool { return len(validation.IsValidLabelValue(v)) > 0 })
}

// only keeps what is required of one key.
func (w *labelDemands) only(key string) *labelDemands {
	of := func(list []expr) []expr {
		return slices.DeleteFunc(slices.Clone(list), func(e expr) bool { return e.key != key })
	}
	out := &labelDemands{selector: of(w.selector), affinity: w.affinity}
	for _, t := range w.terms {
		out.terms = append(out.terms, of(t))
	}
	return out
}

// admits reports whether a node with fixed labels, or labels of which holds decides, satisfies the demands.
func (w *labelDemands) admits(holds func(*expr) bool) bool {
	all := func(list []expr) bool {
		for i := range list {
			if !holds(&list[i]) {
				return false
			}
		}
		return true
	}
	return all(w.selector) && (!w.affinity || slices.ContainsFunc(w.terms, all))
}

// reaches reports whether a pod may run where key has this value, as far as that label is concerned.
func (w *labelDemands) reaches(key, value string) bool {
	return w.only(key).admits(func(e *expr) bool { return e.has(value) })
}

// selects reports whether a label selector matches these labels; nil and invalid selectors match nothing.
func selects(s *metav1.LabelSelector, labels map[string]string) bool {
	if s == nil {
		return false
	}
	broken := func(values ...string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return len(validation.IsValidLabelValue(v)) > 0 })
	}
	for k, v := range s.MatchLabels {
		if broken(v) {
			return false
		}
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		v, ok := labels[e.Key]
		listed := slices.Contains(e.Values, v)
		matched := false
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			matched = ok && listed
		case metav1.LabelSelectorOpNotIn:
			matched = len(e.Values) > 0 && (!ok || !listed)
		case metav1.LabelSelectorOpExists:
			matched = ok && len(e.Values) == 0
		case metav1.LabelSelectorOpDoesNotExist:
			matched = !ok && len(e.Values) == 0
		}
		if !matched || broken(e.Values...) {
			return false
		}
	}
	return true
}
