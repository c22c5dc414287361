package crdtest

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type props = apiextensionsv1.JSONSchemaProps

// constraint is one rule of a schema.
type constraint struct {
	// field has [] for any item of a list, {} for any key of a map.
	field string
	// rules are the names that the rule goes by.
	rules []string
	// message is the API server's error when it is violated.
	message string
}

// constraints lists every rule below s. A pattern or expression without a name is an error.
func constraints(field string, s *props) (all []constraint, err error) {
	add := func(field, rule, message string) {
		all = append(all, constraint{field: field, rules: []string{rule}, message: message})
	}
	for _, name := range s.Required {
		if s.Properties[name].Default != nil {
			continue // never missing
		}
		add(child(field, name), "required", "Required value")
	}
	if s.Enum != nil {
		add(field, "enum", "Unsupported value")
	}
	if s.Format == "date-time" {
		add(field, "date", "must be of type date-time")
	}
	for rule, limit := range map[string]*int64{
		"minLength": s.MinLength, "maxLength": s.MaxLength, "minItems": s.MinItems, "maxItems": s.MaxItems, "maxProperties": s.MaxProperties,
	} {
		if limit != nil {
			add(field, rule, limitMessage(rule, *limit))
		}
	}
	if s.Minimum != nil {
		add(field, "min", fmt.Sprintf("should be greater than or equal to %v", *s.Minimum))
	}
	if s.Maximum != nil {
		add(field, "max", fmt.Sprintf("should be less than or equal to %v", *s.Maximum))
	}
	if s.XListType != nil && *s.XListType != "atomic" {
		add(field, "unique", "Duplicate value")
	}
	if s.Pattern != "" {
		all = append(all, constraint{field, named(patterns, s.Pattern), "should match '" + s.Pattern + "'"})
	}
	for _, v := range s.XValidations {
		all = append(all, constraint{field, named(rules, v.Rule), v.Message})
	}
	for _, c := range all {
		if len(c.rules) == 0 {
			return nil, fmt.Errorf("%s has a rule without a name: %s", c.field, c.message)
		}
	}
	for path, sub := range children(field, s) {
		below, err := constraints(path, &sub)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

func limitMessage(rule string, limit int64) string {
	switch rule {
	case "minLength":
		return fmt.Sprintf("should be at least %d chars long", limit)
	case "maxLength":
		return fmt.Sprintf("may not be more than %d bytes", limit)
	case "minItems":
		return fmt.Sprintf("should have at least %d items", limit)
	default: // the API server calls properties items, too
		return fmt.Sprintf("must have at most %d items", limit)
	}
}

func children(field string, s *props) map[string]props {
	all := map[string]props{}
	for name, property := range s.Properties {
		if field != "" || name == "spec" || name == "status" {
			all[child(field, name)] = property
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		all[field+"[]"] = *s.Items.Schema
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		all[field+".{}"] = *s.AdditionalProperties.Schema
	}
	return all
}

func child(field, name string) string { return strings.TrimPrefix(field+"."+name, ".") }

// named returns the names under which text is known.
func named(table map[string]string, text string) (names []string) {
	for name, known := range table {
		if known == text {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// general turns a field of an example into that of its constraint.
func general(s *props, field string) (string, error) {
	steps, err := parseField(field)
	if err != nil {
		return "", err
	}
	out := ""
	for _, step := range steps {
		switch {
		case step.isIndex && s.Items != nil:
			out += "[]"
			s = s.Items.Schema
		case !step.isIndex && s.AdditionalProperties != nil:
			out += ".{}"
			s = s.AdditionalProperties.Schema
		default:
			property, ok := s.Properties[step.property]
			if !ok {
				return "", fmt.Errorf("no field %s", field)
			}
			out = child(out, step.property)
			s = &property
		}
	}
	return out, nil
}
