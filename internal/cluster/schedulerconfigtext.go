package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// decodeSchedulerConfig reads the text of the setting. The errors name fields by their paths.
func decodeSchedulerConfig(text string) (out schedulerConfig, err error) {
	data, err := sigsyaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return out, fmt.Errorf("is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := isObject(data); err != nil {
		return out, err
	}
	unknown, err := kjson.UnmarshalStrict(data, &out)
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mismatch):
		return out, fmt.Errorf("%s: is %s, and must be %s", mismatch.Field, valueOf(mismatch.Value), kindOf(mismatch.Type))
	case err != nil:
		return out, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	for i, field := range unknown {
		unknown[i] = describeUnknown(field)
	}
	return out, errors.Join(unknown...)
}

// isObject returns what the text is in place of an object with the fields of schedulerConfig.
func isObject(data []byte) error {
	var whole any
	if err := json.Unmarshal(data, &whole); err != nil {
		return err
	}
	switch t := whole.(type) {
	case map[string]any:
		if kind, named := t["kind"].(string); named {
			return fmt.Errorf("is a whole %s, and takes only what plans depend on, in the form %s", kind, configForm)
		}
		return nil
	case string:
		return fmt.Errorf(`is the text %q, and must be the configuration itself, in the form %s: for that of a file, use "$(cat FILE)"`,
			t, configForm)
	}
	return fmt.Errorf("must be an object, in the form %s", configForm)
}

// configForm is what the setting looks like.
const configForm = "{podTopologySpread: {defaultConstraints: [...]}, profiles: [{schedulerName: ..., ...}]}"

// kindOf is a type in the words of YAML.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	}
	return "a number"
}

// valueOf is what the decoder has found, such as "array" or "number 1.5", in the words of YAML.
func valueOf(found string) string {
	switch found {
	case "array":
		return "a list"
	case "object":
		return "an object"
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	}
	return "a " + found
}

// describeUnknown adds to an error of the strict decoder, which is like unknown field "profiles[0].x", which fields are known there.
func describeUnknown(err error) error {
	_, quoted, _ := strings.Cut(err.Error(), `"`)
	path, parent := strings.TrimSuffix(quoted, `"`), ""
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		parent = path[:dot]
	}
	known := spelling.FieldsAt(reflect.TypeFor[schedulerConfig](), parent)
	return fmt.Errorf("%s: is not known here: known are %s", path, strings.Join(known, ", "))
}
