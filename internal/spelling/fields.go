package spelling

import (
	"reflect"
	"strings"
)

// FieldsAt are the names in JSON of the fields at a path like spec.containers[0].resources of a type, in their order; nil if the path
// finishes in a map.
func FieldsAt(t reflect.Type, path string) (out []string) {
	for path != "" {
		var step string
		step, path, _ = strings.Cut(path, ".")
		step, _, _ = strings.Cut(step, "[")
		found := false
		for _, f := range fieldsOf(t) {
			if f.name == step {
				t, found = f.of, true
				break
			}
		}
		if !found {
			return nil
		}
	}
	for _, f := range fieldsOf(t) {
		out = append(out, f.name)
	}
	return out
}

// field is a field of a struct, or of one that is inline.
type field struct {
	name string // in JSON
	of   reflect.Type
}

func fieldsOf(t reflect.Type) (out []field) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "", options == "inline":
			out = append(out, fieldsOf(f.Type)...)
		case name != "":
			out = append(out, field{name, f.Type})
		}
	}
	return out
}
