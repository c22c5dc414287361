package v1

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// RuntimeValidate checks what the API server cannot: which labels exist and which values they may have.
// The error names every field at fault; it is fit for the message of ConditionValidationSucceeded.
func (p *NodePool) RuntimeValidate(v Vocabulary) error {
	path := field.NewPath("spec", "template")
	template := p.Spec.Template
	errs := v.validateTemplateLabels(path.Child("metadata", "labels"), template.Labels)
	errs = append(errs, validateTaints(path.Child("spec"), template.Spec.Taints, template.Spec.StartupTaints)...)
	for i, r := range template.Spec.Requirements {
		at := path.Child("spec", "requirements").Index(i)
		if v.Normalize(r.Key) == LabelNodePool {
			errs = append(errs, field.Forbidden(at.Child("key"), LabelNodePool+" is set by the system"))
			continue
		}
		errs = append(errs, v.ValidateRequirement(at, r)...)
	}
	return errs.ToAggregate()
}

func (v Vocabulary) validateTemplateLabels(path *field.Path, labels map[string]string) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := path.Key(key)
		if key == LabelNodePool {
			errs = append(errs, field.Forbidden(at, "it is set by the system"))
		}
		errs = append(errs, invalid(at, key, validation.IsQualifiedName(key))...)
		errs = append(errs, invalid(at, labels[key], validation.IsValidLabelValue(labels[key]))...)
		if v.IsRestricted(key) {
			errs = append(errs, field.Forbidden(at, "the label is reserved for the system"))
		}
	}
	return errs
}

// validateTaints judges both lists together: the node has them all at once.
func validateTaints(path *field.Path, taints, startupTaints []corev1.Taint) (errs field.ErrorList) {
	type identity struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[identity]bool{}
	check := func(path *field.Path, taints []corev1.Taint) {
		for i, t := range taints {
			at := path.Index(i)
			if t.Key == "" {
				errs = append(errs, field.Required(at.Child("key"), ""))
			} else {
				errs = append(errs, invalid(at.Child("key"), t.Key, validation.IsQualifiedName(t.Key))...)
			}
			if t.Value != "" {
				errs = append(errs, invalid(at.Child("value"), t.Value, validation.IsQualifiedName(t.Value))...)
			}
			switch t.Effect {
			case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute, "":
			default:
				errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{
					corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
				}))
			}
			id := identity{t.Key, t.Effect}
			if seen[id] {
				errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
			}
			seen[id] = true
		}
	}
	check(path.Child("taints"), taints)
	check(path.Child("startupTaints"), startupTaints)
	return errs
}

// ValidateRequirement checks a requirement of a NodePool or of a pod. path is where it stands and may be nil.
//
// A value that is unknown to a key with known values is no error as long as enough known ones remain, so
// that a NodePool may name what only a later version knows.
func (v Vocabulary) ValidateRequirement(path *field.Path, r Requirement) (errs field.ErrorList) {
	key := v.Normalize(r.Key)
	at := path.Child("key")
	errs = append(errs, invalid(at, r.Key, validation.IsQualifiedName(key))...)
	if v.IsRestricted(key) {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("label %s is reserved for the system", key)))
	}
	at = path.Child("values")
	for i, value := range r.Values {
		errs = append(errs, invalid(at.Index(i), value, validation.IsValidLabelValue(value))...)
	}
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		errs = append(errs, v.validateIn(path, key, r)...)
	case corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, OperatorGte, OperatorLte:
		if !isOneNonNegativeInteger(r.Values) {
			errs = append(errs, field.Invalid(at, r.Values, fmt.Sprintf("operator %s needs one integer of at least 0", r.Operator)))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), r.Operator, []corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
			corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, OperatorGte, OperatorLte,
		}))
	}
	return errs
}

func (v Vocabulary) validateIn(path *field.Path, key string, r Requirement) field.ErrorList {
	at := path.Child("values")
	if len(r.Values) == 0 {
		return field.ErrorList{field.Required(at, "operator In needs values")}
	}
	minValues := 0
	if r.MinValues != nil {
		minValues = *r.MinValues
	}
	if len(r.Values) < minValues {
		return field.ErrorList{field.Invalid(at, r.Values, fmt.Sprintf("minValues needs at least %d values", minValues))}
	}
	known, closed := v.KnownValues[key]
	if !closed {
		return nil
	}
	count := 0
	for _, value := range r.Values {
		if slices.Contains(known, value) {
			count++
		}
	}
	if count < max(1, minValues) {
		return field.ErrorList{field.Invalid(at, r.Values, fmt.Sprintf("at least %d of the values must be among %v", max(1, minValues), known))}
	}
	return nil
}

func isOneNonNegativeInteger(values []string) bool {
	if len(values) != 1 {
		return false
	}
	n, err := strconv.Atoi(values[0])
	return err == nil && n >= 0
}

func invalid(path *field.Path, value string, problems []string) (errs field.ErrorList) {
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, problem))
	}
	return errs
}
