package manifest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func tolerationErrors(t corev1.Toleration, path *field.Path) (out field.ErrorList) {
	if t.Key != "" {
		out = append(out, metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
	} else if t.Operator != corev1.TolerationOpExists {
		const why = "must be Exists when `key` is empty, which means \"match all values and all keys\""
		out = append(out, field.Invalid(path.Child("operator"), t.Operator, why))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		out = append(out, field.Invalid(path.Child("effect"), t.Effect, "must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		out = append(out, valueErrors(t.Value, path.Child("value"))...)
	case corev1.TolerationOpExists:
		if t.Value != "" {
			out = append(out, field.Invalid(path.Child("value"), t.Value, "must be empty when `operator` is 'Exists'"))
		}
	default:
		known := []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpGt, corev1.TolerationOpLt}
		out = append(out, oneOf(t.Operator, path.Child("operator"), known...)...)
	}
	if t.Effect != "" {
		out = append(out, effectErrors(t.Effect, path.Child("effect"))...)
	}
	return out
}

func affinityErrors(a *corev1.Affinity, path *field.Path) (out field.ErrorList) {
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
	if a == nil {
		return nil
	}
	if n := a.NodeAffinity; n != nil {
		out = append(out, nodeAffinityErrors(n, path.Child("nodeAffinity"))...)
	}
	for _, of := range []struct {
		path      *field.Path
		required  []corev1.PodAffinityTerm
		preferred []corev1.WeightedPodAffinityTerm
	}{
		podTerms(a.PodAffinity, path.Child("podAffinity")),
		podTerms((*corev1.PodAffinity)(a.PodAntiAffinity), path.Child("podAntiAffinity")),
	} {
		for i := range of.required {
			out = append(out, podTermErrors(&of.required[i], of.path.Child(required).Index(i))...)
		}
		for i := range of.preferred {
			at := of.path.Child(preferred).Index(i)
			out = append(out, weightErrors(of.preferred[i].Weight, at.Child("weight"))...)
			out = append(out, podTermErrors(&of.preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
		}
	}
	return out
}

func podTerms(a *corev1.PodAffinity, path *field.Path) (out struct {
	path      *field.Path
	required  []corev1.PodAffinityTerm
	preferred []corev1.WeightedPodAffinityTerm
},
) {
	if out.path = path; a != nil {
		out.required, out.preferred = a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return out
}

func nodeAffinityErrors(n *corev1.NodeAffinity, path *field.Path) (out field.ErrorList) {
	if required := n.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		at := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			out = append(out, field.Required(at, "must have at least one node selector term"))
		}
		for i, term := range required.NodeSelectorTerms {
			out = append(out, nodeTermErrors(term, true, at.Index(i))...)
		}
	}
	for i, term := range n.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		out = append(out, weightErrors(term.Weight, at.Child("weight"))...)
		out = append(out, nodeTermErrors(term.Preference, false, at.Child("preference"))...)
	}
	return out
}

func weightErrors(weight int32, path *field.Path) field.ErrorList {
	if weight < 1 || weight > 100 {
		return field.ErrorList{field.Invalid(path, weight, "must be in the range 1-100")}
	}
	return nil
}

// nodeTermErrors returns the errors in a term. The API server validates the values of required terms only.
func nodeTermErrors(term corev1.NodeSelectorTerm, required bool, path *field.Path) (out field.ErrorList) {
	for i, e := range term.MatchExpressions {
		at := path.Child("matchExpressions").Index(i)
		switch n := len(e.Values); e.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if n == 0 {
				out = append(out, field.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if n > 0 {
				out = append(out, field.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if n != 1 {
				out = append(out, field.Required(at.Child("values"), "must be a single value when `operator` is 'Lt' or 'Gt'"))
			}
		default:
			out = append(out, field.Invalid(at.Child("operator"), e.Operator, "not a valid selector operator"))
		}
		out = append(out, keyErrors(e.Key, at.Child("key"))...)
		for j, value := range e.Values {
			if required {
				out = append(out, valueErrors(value, at.Child("values").Index(j))...)
			}
		}
	}
	for i, e := range term.MatchFields {
		at := path.Child("matchFields").Index(i)
		if e.Key != metav1.ObjectNameField {
			out = append(out, field.Invalid(at.Child("key"), e.Key, "not a valid field selector key, which is "+metav1.ObjectNameField))
		}
		out = append(out, oneOf(e.Operator, at.Child("operator"), corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn)...)
		if len(e.Values) != 1 {
			out = append(out, field.Required(at.Child("values"), "must be only one value"))
		}
	}
	return out
}

func podTermErrors(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	out := keyErrors(t.TopologyKey, path.Child("topologyKey"))
	out = append(out, selectorErrors(t.LabelSelector, path.Child("labelSelector"))...)
	out = append(out, selectorErrors(t.NamespaceSelector, path.Child("namespaceSelector"))...)
	for i, namespace := range t.Namespaces {
		for _, why := range validation.IsDNS1123Label(namespace) {
			out = append(out, field.Invalid(path.Child("namespaces").Index(i), namespace, why))
		}
	}
	for i, key := range t.MatchLabelKeys {
		out = append(out, keyErrors(key, path.Child("matchLabelKeys").Index(i))...)
	}
	for i, key := range t.MismatchLabelKeys {
		out = append(out, keyErrors(key, path.Child("mismatchLabelKeys").Index(i))...)
	}
	return out
}

func selectorErrors(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
}

// spreadKey describes what must be unique among the topology spread constraints of a pod.
type spreadKey struct {
	topologyKey       string
	whenUnsatisfiable corev1.UnsatisfiableConstraintAction
}

func spreadErrors(constraints []corev1.TopologySpreadConstraint, path *field.Path) (out field.ErrorList) {
	known := map[spreadKey]bool{}
	for i := range constraints {
		c, at := &constraints[i], path.Index(i)
		if c.MaxSkew <= 0 {
			out = append(out, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		out = append(out, keyErrors(c.TopologyKey, at.Child("topologyKey"))...)
		out = append(out, oneOf(c.WhenUnsatisfiable, at.Child("whenUnsatisfiable"), corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		if s := (spreadKey{c.TopologyKey, c.WhenUnsatisfiable}); known[s] {
			out = append(out, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), "{"+s.topologyKey+", "+string(s.whenUnsatisfiable)+"}"))
		} else {
			known[s] = true
		}
		switch {
		case c.MinDomains == nil:
		case *c.MinDomains <= 0:
			out = append(out, field.Invalid(at.Child("minDomains"), *c.MinDomains, "must be greater than zero"))
		case c.WhenUnsatisfiable != corev1.DoNotSchedule:
			out = append(out, field.Invalid(at.Child("minDomains"), *c.MinDomains, "can only use minDomains if whenUnsatisfiable=DoNotSchedule"))
		}
		if p := c.NodeAffinityPolicy; p != nil {
			out = append(out, oneOf(*p, at.Child("nodeAffinityPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		}
		if p := c.NodeTaintsPolicy; p != nil {
			out = append(out, oneOf(*p, at.Child("nodeTaintsPolicy"), corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)...)
		}
		for j, key := range c.MatchLabelKeys {
			out = append(out, keyErrors(key, at.Child("matchLabelKeys").Index(j))...)
		}
		out = append(out, selectorErrors(c.LabelSelector, at.Child("labelSelector"))...)
	}
	return out
}
