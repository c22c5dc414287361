// Package reference makes the documentation of a chart's values, their JSON schema, and the list of their names that the
// chart's templates check, all from values.yaml and its comments.
//
// A value has a comment "# -- (TYPE) TEXT", in the format of helm-docs. TYPE is string, boolean, integer, number, object, "list of
// TYPE", "one of A, B", or several of the first with "or" between; it is omitted where the default shows it. A map that is not
// empty and has no type is a section: its keys are values themselves.
package reference

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is a value of a chart, or a section of values.
type Value struct {
	// Path is the names from the root, such as controller and resources.
	Path []string
	// Type is as in the comment; empty for a section.
	Type string
	// Text is what the value does.
	Text string
	// Default is the YAML node of the default.
	Default *yaml.Node
	// Section has the values below, in the order of the file; nil for a value.
	Section []Value
}

// Name is the last name of the path.
func (v Value) Name() string { return v.Path[len(v.Path)-1] }

// String is the path as users write it, such as controller.resources.
func (v Value) String() string { return strings.Join(v.Path, ".") }

// nullable reports whether the default is no value.
func (v Value) nullable() bool { return v.Default.Tag == "!!null" }

// Parse reads a values.yaml. It is an error if a value has no comment, or no type.
func Parse(text []byte) ([]Value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the values are not a map")
	}
	return section(nil, document.Content[0])
}

// section reads the values of a map.
func section(path []string, node *yaml.Node) ([]Value, error) {
	var out []Value
	var errs []error
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		v, err := read(append(path[:len(path):len(path)], key.Value), key.HeadComment, value)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, v)
	}
	return out, errors.Join(errs...)
}

var (
	annotation = regexp.MustCompile(`^(?:\(([^)]*)\)\s*)?(.*)$`)
	scalars    = map[string]string{"!!bool": "boolean", "!!int": "integer", "!!float": "number", "!!str": "string"}
)

// read reads one value from its comment and its default.
func read(path []string, comment string, node *yaml.Node) (Value, error) {
	v := Value{Path: path, Default: node}
	said, documented := textOf(comment)
	match := annotation.FindStringSubmatch(said)
	v.Type, v.Text = match[1], match[2]
	isMap := node.Kind == yaml.MappingNode
	switch {
	case v.Type == "" && isMap && len(node.Content) > 0:
		var err error
		v.Section, err = section(path, node)
		return v, err
	case !documented:
		return v, fmt.Errorf("%s has no comment %q", v, "# -- TEXT")
	case v.Type != "":
	case isMap:
		v.Type = "object"
	default:
		v.Type = scalars[node.Tag]
	}
	if _, err := schemaOf(v.Type); err != nil {
		return v, fmt.Errorf("%s: %w", v, err)
	}
	return v, nil
}

// textOf is a comment without its marks: what follows the last "# --", or the whole last paragraph of a section's comment.
func textOf(comment string) (text string, documented bool) {
	if _, after, ok := strings.Cut(comment, "# -- "); ok {
		comment, documented = after, true
	}
	if i := strings.LastIndex(comment, "\n\n"); i >= 0 {
		comment = comment[i:]
	}
	var words []string
	for line := range strings.Lines(comment) {
		words = append(words, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "#"))...)
	}
	return strings.Join(words, " "), documented
}

// Each calls f for all values and sections, parents first.
func Each(values []Value, f func(Value)) {
	for _, v := range values {
		f(v)
		Each(v.Section, f)
	}
}
