// Package adjust adds to generated CustomResourceDefinitions what markers on Go types cannot state: rules on
// types of Kubernetes that our types use (taints, conditions), rules on the values of string maps, rules
// that hold for a type in one place but not in another, and rules over the list of AWS labels, which has
// its place in api/aws/v1.
package adjust

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

const (
	patternQualifiedName = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	patternLabelValue    = `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	patternMaybeReason   = `^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$`
)

type schema = apiextensionsv1.JSONSchemaProps

// adjustment changes the schema of one field. In path, "[]" steps into the items of a list and "{}" into
// the values of a map.
type adjustment struct {
	crd, path string
	change    func(*schema)
}

func adjustments() []adjustment {
	const (
		pool, claim, overlay = "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh"
		class                = "ec2nodeclasses.karpenter.k8s.aws"

		template = "spec.template.spec."
	)
	requirementLabels := awsv1.LabelsAllowedInRequirements()
	return []adjustment{
		{pool, template + "taints.[]", constrainTaint},
		{pool, template + "startupTaints.[]", constrainTaint},
		{claim, "spec.taints.[]", constrainTaint},
		{claim, "spec.startupTaints.[]", constrainTaint},

		{pool, "spec.template.metadata.labels.{}", constrainLabelValue},
		{pool, "spec.template.metadata.labels", rule(
			`label domain "karpenter.k8s.aws" is restricted`,
			`self.all(x, x in `+celList(requirementLabels)+` || !x.find("^([^/]+)").endsWith("karpenter.k8s.aws"))`)},

		// The pool of a node is the system's to state. Claims, which have the same type of requirements, do state it.
		{pool, template + "requirements.[].key", rule(`label "karpenter.sh/nodepool" is restricted`, `self != "karpenter.sh/nodepool"`)},

		{pool, template + "requirements.[].key", allowAWSLabels(requirementLabels)},
		{claim, "spec.requirements.[].key", allowAWSLabels(requirementLabels)},
		{overlay, "spec.requirements.[].key", allowAWSLabels(awsv1.LabelsAllowedInOverlays())},

		{class, "spec.kubelet", constrainImageGC},

		// Claims that Karpenter wrote may lack a reason or a message.
		{claim, "status.conditions.[]", relaxCondition},
	}
}

// Apply makes every adjustment for crd.
func Apply(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, a := range adjustments() {
		if a.crd != crd.Name {
			continue
		}
		for i := range crd.Spec.Versions {
			if err := change(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, strings.Split(a.path, "."), a.change); err != nil {
				return fmt.Errorf("%s: %s: %w", a.crd, a.path, err)
			}
		}
	}
	return nil
}

func change(s *schema, path []string, f func(*schema)) error {
	if len(path) == 0 {
		f(s)
		return nil
	}
	switch step := path[0]; {
	case step == "[]" && s.Items != nil && s.Items.Schema != nil:
		return change(s.Items.Schema, path[1:], f)
	case step == "{}" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return change(s.AdditionalProperties.Schema, path[1:], f)
	default:
		property, ok := s.Properties[step]
		if !ok {
			return fmt.Errorf("no field %q", step)
		}
		err := change(&property, path[1:], f)
		s.Properties[step] = property
		return err
	}
}

func constrainTaint(s *schema) {
	edit(s, "key", func(key *schema) {
		one := int64(1)
		key.MinLength = &one
		key.Pattern = patternQualifiedName
	})
	edit(s, "value", func(value *schema) { value.Pattern = patternQualifiedName })
	edit(s, "effect", func(effect *schema) {
		for _, value := range []string{"NoSchedule", "PreferNoSchedule", "NoExecute"} {
			effect.Enum = append(effect.Enum, apiextensionsv1.JSON{Raw: quote(value)})
		}
	})
}

func constrainLabelValue(s *schema) {
	length := int64(63)
	s.MaxLength = &length
	s.Pattern = patternLabelValue
}

// constrainImageGC names the two fields of an otherwise open object that a rule is about.
func constrainImageGC(s *schema) {
	percent := func(description string) schema {
		least, most := 0.0, 100.0
		return schema{Type: "integer", Format: "int32", Minimum: &least, Maximum: &most, Description: description}
	}
	s.Properties = map[string]schema{
		"imageGCHighThresholdPercent": percent("ImageGCHighThresholdPercent is how full the disk is when images are deleted."),
		"imageGCLowThresholdPercent":  percent("ImageGCLowThresholdPercent is how full the disk is when image garbage collection stops."),
	}
	rule("imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
		"!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent)"+
			" || self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent")(s)
}

func relaxCondition(s *schema) {
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return name == "reason" || name == "message" })
	edit(s, "reason", func(reason *schema) {
		reason.MinLength = nil
		reason.Pattern = patternMaybeReason
	})
}

func allowAWSLabels(labels []string) func(*schema) {
	return rule(
		`label domain "karpenter.k8s.aws" is restricted`,
		`self in `+celList(labels)+` || !self.find("^([^/]+)").endsWith("karpenter.k8s.aws")`)
}

func rule(message, expression string) func(*schema) {
	return func(s *schema) {
		s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{Rule: expression, Message: message})
	}
}

func edit(s *schema, property string, f func(*schema)) {
	p := s.Properties[property]
	f(&p)
	s.Properties[property] = p
}

func celList(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = string(quote(value))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// quote writes a string as JSON and CEL both read it. Label keys need no escapes.
func quote(s string) []byte {
	text, _ := json.Marshal(s)
	return text
}
