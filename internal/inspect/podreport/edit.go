package podreport

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// Action describes what an edit does with its object.
type Action string

// The actions.
const (
	// Patch changes fields in place.
	Patch Action = "patch"
	// Create makes a new object.
	Create Action = "create"
	// Recreate deletes the object and creates it with other fields, since the API server does not let them change.
	Recreate Action = "recreate"
	// Delete deletes the object.
	Delete Action = "delete"
	// Resolve is work outside of the cluster's objects, after which a condition of the object becomes True.
	Resolve Action = "resolve"
)

// Object identifies what is edited.
type Object struct {
	Kind string `json:"kind"`
	// Namespace is empty for objects of the cluster.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String names the object as messages do.
func (o Object) String() string {
	if o.Namespace != "" {
		return o.Kind + " " + o.Namespace + "/" + o.Name
	}
	return o.Kind + " " + o.Name
}

// resource names the object as kubectl does.
func (o Object) resource() string {
	out := strings.ToLower(o.Kind) + " " + o.Name
	if o.Namespace != "" {
		out += " -n " + o.Namespace
	}
	return out
}

// Operation is one operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// MarshalJSON writes a value that is empty, too, unless the operation removes.
func (o Operation) MarshalJSON() ([]byte, error) {
	if o.Op == "remove" {
		return json.Marshal(struct {
			Op   string `json:"op"`
			Path string `json:"path"`
		}{o.Op, o.Path})
	}
	return json.Marshal(struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}{o.Op, o.Path, o.Value})
}

// Edit is a change of one object.
type Edit struct {
	Object
	Action Action `json:"action"`
	// Fields are the fields that change. There are none if the object is created or deleted.
	Fields []FieldChange `json:"fields"`
	// Patch changes the fields of the object; empty if it is created or deleted.
	Patch []Operation `json:"patch"`
	// Manifest is the object to create, as YAML.
	Manifest string `json:"manifest,omitempty"`
	// Command holds what to run in a shell. It is empty if there is none.
	Command string `json:"command,omitempty"`
}

// FieldChange is a field with its values before and after, as JSON. An absent value is empty.
type FieldChange struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// pointer is a JSON pointer (RFC 6901) of fields, keys and indices.
func pointer(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(p)))
	}
	return b.String()
}

// segments are the parts of a JSON pointer.
func segments(path string) []string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[i])
	}
	return parts
}

// fieldPath prints a JSON pointer as people write fields: spec.nodeSelector["example.com/disk"].
func fieldPath(path string) string {
	var b strings.Builder
	for i, s := range segments(path) {
		_, err := strconv.Atoi(s)
		switch {
		case s == "-":
			b.WriteString("[]")
		case err == nil:
			b.WriteString("[" + s + "]")
		case strings.ContainsAny(s, "./"):
			fmt.Fprintf(&b, "[%q]", s)
		case i == 0:
			b.WriteString(s)
		default:
			b.WriteString("." + s)
		}
	}
	return b.String()
}

// valueAt is the value at a JSON pointer of a decoded document, as JSON; empty if there is none.
func valueAt(document any, path string) string {
	for _, s := range segments(path) {
		switch t := document.(type) {
		case map[string]any:
			v, ok := t[s]
			if !ok {
				return ""
			}
			document = v
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || i >= len(t) {
				return ""
			}
			document = t[i]
		default:
			return ""
		}
	}
	return compact(document)
}

// compact is a value as JSON, and a plain string as itself.
func compact(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// patched is a copy of an object with a JSON patch applied.
func patched[T any](object *T, patch []Operation) (*T, error) {
	before, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	operations, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, err
	}
	after, err := decoded.Apply(before)
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, json.Unmarshal(after, out)
}

// changes are the fields that a patch changes on an object, with their values before and after. Prefix is put before
// each path: a pod's fields are those of its workload's template.
func changes(object any, patch []Operation, prefix string) []FieldChange {
	var document any
	if data, err := json.Marshal(object); err == nil {
		_ = json.Unmarshal(data, &document) // what was encoded can be decoded
	}
	var out []FieldChange
	for _, op := range patch {
		path, old := op.Path, valueAt(document, op.Path)
		if cut, appended := strings.CutSuffix(op.Path, "/-"); appended {
			path, old = cut, valueAt(document, cut)
		}
		c := FieldChange{Field: fieldPath(prefix + path), Old: old}
		switch {
		case op.Op == "remove":
		case path != op.Path:
			c.New = withAppended(old, op.Value)
		default:
			c.New = compact(plain(op.Value))
		}
		out = append(out, c)
	}
	return out
}

// withAppended is a JSON list with one more value.
func withAppended(list string, value any) string {
	var values []any
	_ = json.Unmarshal([]byte(list), &values) // a list that is absent is empty
	return compact(append(values, plain(value)))
}

// plain is a value as it is decoded from JSON.
func plain(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var out any
	if json.Unmarshal(data, &out) != nil {
		return v
	}
	return out
}

// prefixPatch puts a prefix before each path of a patch.
func prefixPatch(prefix string, patch []Operation) []Operation {
	out := make([]Operation, len(patch))
	for i, op := range patch {
		op.Path = prefix + op.Path
		out[i] = op
	}
	return out
}

// patchCommand is the kubectl command of a JSON patch. The patch is broken into lines of at most the width; JSON allows that
// between its tokens.
func patchCommand(o Object, patch []Operation) string {
	return "kubectl patch " + o.resource() + " --type=json -p '" + patchText(patch) + "'"
}

// replaceCommand deletes an object, and creates it again with a JSON patch.
func replaceCommand(o Object, patch []Operation) string {
	return "kubectl get " + o.resource() + " -o json |\n  kubectl patch --local -f - --type=json -p '" + patchText(patch) +
		"' -o json |\n  kubectl replace --force -f -"
}

// patchText is a JSON patch between single quotes of a shell, an operation in a line.
func patchText(patch []Operation) string {
	var lines []string
	for i, op := range patch {
		text := compact(op)
		if i == 0 {
			text = "[" + text
		}
		if i == len(patch)-1 {
			text += "]"
		} else {
			text += ","
		}
		lines = append(lines, text)
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "'", `'\''`)
}
