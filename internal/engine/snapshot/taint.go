package snapshot

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Tolerates reports whether any of the tolerations covers the taint.
func Tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	for i := range tolerations {
		if covers(&tolerations[i], taint) {
			return true
		}
	}
	return false
}

// covers follows the API's rules: an empty effect means all effects, an empty key all keys, an empty operator Equal.
func covers(t *corev1.Toleration, taint *corev1.Taint) bool {
	if (t.Effect != "" && t.Effect != taint.Effect) || (t.Key != "" && t.Key != taint.Key) {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Value == taint.Value
	case corev1.TolerationOpGt, corev1.TolerationOpLt:
		bound, err := strconv.ParseInt(t.Value, 10, 64)
		value, err2 := strconv.ParseInt(taint.Value, 10, 64)
		if err != nil || err2 != nil {
			return false
		}
		return (t.Operator == corev1.TolerationOpGt) == (value > bound) && value != bound
	}
	return false
}

// UntoleratedHard returns the first taint that keeps pods with these tolerations off a node. Taints with effect
// PreferNoSchedule keep no pod off.
func UntoleratedHard(tolerations []corev1.Toleration, taints []corev1.Taint) (*corev1.Taint, bool) {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !Tolerates(tolerations, &taints[i]) {
			return &taints[i], true
		}
	}
	return nil, false
}

// HasSoft reports whether any of the taints has effect PreferNoSchedule.
func HasSoft(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
}

// Untolerated returns the first taint that the tolerations do not cover, whatever its effect.
func Untolerated(tolerations []corev1.Toleration, taints []corev1.Taint) (*corev1.Taint, bool) {
	for i := range taints {
		if !Tolerates(tolerations, &taints[i]) {
			return &taints[i], true
		}
	}
	return nil, false
}
