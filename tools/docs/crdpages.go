package docs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/dovetail-k8s/dovetail/api/crds"
)

// referencePages are the pages of all kinds, by their path, and their index.
func referencePages() (map[string]string, error) {
	all, err := crds.All()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	var index strings.Builder
	index.WriteString(generated + "# API reference\n\nEach field of Dovetail's objects, from their CustomResourceDefinitions.\n\n")
	for _, crd := range all {
		name := strings.ToLower(crd.Spec.Names.Kind) + ".md"
		out["docs/reference/"+name] = page(crd)
		version := crd.Spec.Versions[0]
		fmt.Fprintf(&index, "- [%s](%s) (`%s/%s`): %s\n", crd.Spec.Names.Kind, name, crd.Spec.Group, version.Name,
			sentence(version.Schema.OpenAPIV3Schema.Description))
	}
	out["docs/reference/README.md"] = index.String()
	return out, nil
}

// page describes the objects of a definition: a table for spec and one for status.
func page(crd *apiextensionsv1.CustomResourceDefinition) string {
	var out strings.Builder
	version := crd.Spec.Versions[0]
	root := version.Schema.OpenAPIV3Schema
	fmt.Fprintf(&out, "%s# %s\n\n%s\n\n", generated, crd.Spec.Names.Kind, text(root.Description))
	fmt.Fprintf(&out, "API version `%s/%s`, scope %s. ", crd.Spec.Group, version.Name, crd.Spec.Scope)
	names := append([]string{crd.Spec.Names.Plural}, crd.Spec.Names.ShortNames...)
	fmt.Fprintf(&out, "Names for kubectl: `%s`. A field with * is required.\n", strings.Join(names, "`, `"))
	for _, part := range []string{"spec", "status"} {
		schema, ok := root.Properties[part]
		if !ok {
			continue
		}
		fmt.Fprintf(&out, "\n## %s\n\n", part)
		if schema.Description != "" {
			fmt.Fprintf(&out, "%s\n\n", text(schema.Description))
		}
		for _, rule := range schema.XValidations {
			fmt.Fprintf(&out, "Rule: %s.\n\n", text(strings.TrimSuffix(cmp.Or(rule.Message, rule.Rule), ".")))
		}
		out.WriteString("| Field | Type | Default | Rules | Meaning |\n|---|---|---|---|---|\n")
		rows(&out, "", schema)
	}
	return out.String()
}

// rows are those of the properties of an object and of all that is below them.
func rows(out *strings.Builder, prefix string, schema apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property, required := schema.Properties[name], ""
		if slices.Contains(schema.Required, name) {
			required = " *"
		}
		path := prefix + name
		standard := ""
		if property.Default != nil {
			standard = code(compact(property.Default.Raw))
		}
		fmt.Fprintf(out, "| `%s`%s | %s | %s | %s | %s |\n", path, required, typeOf(property), standard,
			strings.Join(rulesOf(property), "; "), text(property.Description))
		below, suffix := &property, "."
		for below.Items != nil && below.Items.Schema != nil {
			below, suffix = below.Items.Schema, "[]"+suffix
		}
		if below.AdditionalProperties != nil && below.AdditionalProperties.Schema != nil {
			below, suffix = below.AdditionalProperties.Schema, ".KEY"+suffix
		}
		rows(out, path+suffix, *below)
	}
}

// typeOf is the type of a field in words.
func typeOf(s apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(*s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*s.AdditionalProperties.Schema)
	case s.Format != "":
		return s.Type + " (" + s.Format + ")"
	default:
		return cmp.Or(s.Type, "any")
	}
}

// rulesOf are the validations of a field in words. Those of a list's items and of a map's values are included.
func rulesOf(s apiextensionsv1.JSONSchemaProps) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, code(strings.Trim(string(v.Raw), `"`)))
		}
		add("one of %s", strings.Join(values, ", "))
	}
	for _, bound := range []struct {
		set   bool
		words string
		value any
	}{
		{s.Minimum != nil, "at least", value(s.Minimum)},
		{s.Maximum != nil, "at most", value(s.Maximum)},
		{s.MinLength != nil, "characters: at least", value(s.MinLength)},
		{s.MaxLength != nil, "characters: at most", value(s.MaxLength)},
		{s.MinItems != nil, "items: at least", value(s.MinItems)},
		{s.MaxItems != nil, "items: at most", value(s.MaxItems)},
		{s.MinProperties != nil, "keys: at least", value(s.MinProperties)},
		{s.MaxProperties != nil, "keys: at most", value(s.MaxProperties)},
	} {
		if bound.set {
			add("%s %v", bound.words, bound.value)
		}
	}
	if s.Pattern != "" {
		add("matches %s", code(s.Pattern))
	}
	for _, rule := range s.XValidations {
		if rule.Message != "" {
			add("%s", text(strings.TrimSuffix(rule.Message, ".")))
		} else {
			add("%s", code(rule.Rule))
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		for _, rule := range rulesOf(*s.Items.Schema) {
			add("each: %s", rule)
		}
	}
	return out
}

func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func compact(raw []byte) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(out)
}

// code is a code span that may be a cell of a table.
func code(s string) string {
	fence := "`"
	if strings.Contains(s, "`") {
		fence = "``"
	}
	return fence + strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`) + fence
}

// text is a description on one line that may be a cell of a table: nothing in it is HTML or a template.
func text(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "{{", "&#123;&#123;").Replace(s)
}

// sentence is the first sentence of a description.
func sentence(s string) string {
	s = text(s)
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i+1]
	}
	return s
}
