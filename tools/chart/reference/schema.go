package reference

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// schema is the part of JSON schema, draft 7, that describes values.
type schema struct {
	Draft       string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        []string           `json:"type,omitempty"`
	Enum        []any              `json:"enum,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	// Others is false where a value that is not listed is refused.
	Others *bool `json:"additionalProperties,omitempty"`
}

// required are the values that templates cannot do without. All have a default, which null takes away.
var required = []string{
	"controller", "controller.containerName", "controller.image", "controller.image.repository", "controller.metrics",
	"controller.metrics.port", "controller.healthProbe", "controller.healthProbe.port", "settings",
}

// schemaOf is the schema of a type as comments name it.
func schemaOf(name string) (*schema, error) {
	if item, ok := strings.CutPrefix(name, "list of "); ok {
		items, err := schemaOf(item)
		return &schema{Type: []string{"array"}, Items: items}, err
	}
	if words, ok := strings.CutPrefix(name, "one of "); ok {
		out := &schema{Type: []string{"string"}}
		for word := range strings.SplitSeq(words, ", ") {
			out.Enum = append(out.Enum, word)
		}
		return out, nil
	}
	types := strings.Split(name, " or ")
	for _, t := range types {
		if !slices.Contains([]string{"string", "boolean", "integer", "number", "object"}, t) {
			return nil, fmt.Errorf("type %q is not known", name)
		}
	}
	return &schema{Type: types}, nil
}

// Schema is the values.schema.json of a chart. It checks types. It accepts unknown names, because the message of a JSON schema
// could not name the one that was meant: the chart's templates refuse these. A closed schema refuses them itself.
func Schema(title string, values []Value, closed bool) ([]byte, error) {
	root, err := schemaOfSection(values, closed)
	if err != nil {
		return nil, err
	}
	root.Draft, root.Title = "http://json-schema.org/draft-07/schema#", title
	// Helm gives each chart the values that charts share.
	root.Properties["global"] = &schema{Type: []string{"object"}, Description: "Values that charts share."}
	out, err := json.MarshalIndent(root, "", "  ")
	return append(out, '\n'), err
}

func schemaOfSection(values []Value, closed bool) (*schema, error) {
	out := &schema{Type: []string{"object"}, Properties: map[string]*schema{}}
	if closed {
		out.Others = new(false)
	}
	for _, v := range values {
		var property *schema
		var err error
		if v.Section != nil {
			property, err = schemaOfSection(v.Section, closed)
		} else {
			property, err = schemaOf(v.Type)
		}
		if err != nil {
			return nil, err
		}
		if v.Section == nil && v.nullable() {
			property.Type = append(property.Type, "null")
			if len(property.Enum) > 0 {
				property.Enum = append(property.Enum, nil)
			}
		}
		if slices.Contains(required, v.String()) {
			out.Required = append(out.Required, v.Name())
		}
		property.Description = v.Text
		out.Properties[v.Name()] = property
	}
	return out, nil
}
