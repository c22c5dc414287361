package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// schema is the part of a JSON schema (as OpenAPI 3.1 has it) that answers need.
type schema struct {
	Ref        string             `json:"$ref,omitempty"`
	Type       []string           `json:"type,omitempty"`
	Format     string             `json:"format,omitempty"`
	Items      *schema            `json:"items,omitempty"`
	Values     *schema            `json:"additionalProperties,omitempty"`
	Properties map[string]*schema `json:"properties,omitempty"`
	Required   []string           `json:"required,omitempty"`
	AnyOf      []*schema          `json:"anyOf,omitempty"`

	fields []string // the names of the properties, in the order of the struct
}

// schemas are the schemas of Go types, by name.
type schemas map[string]*schema

const refPrefix = "#/components/schemas/"

// of is the schema of a type; that of a struct is named.
func (all schemas) of(t reflect.Type) *schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &schema{Type: []string{"string"}, Format: "date-time"}
	case t.Kind() == reflect.Pointer:
		return nullable(all.of(t.Elem()))
	case t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()):
		return marshaled(t)
	}
	switch t.Kind() {
	case reflect.Struct:
		name := nameOf(t)
		if all[name] == nil {
			s := &schema{Type: []string{"object"}, Properties: map[string]*schema{}}
			all[name] = s
			all.fields(t, s)
		}
		return &schema{Ref: refPrefix + name}
	case reflect.Slice:
		return &schema{Type: []string{"array", "null"}, Items: all.of(t.Elem())}
	case reflect.Map:
		return &schema{Type: []string{"object"}, Values: all.of(t.Elem())}
	case reflect.String:
		return &schema{Type: []string{"string"}}
	case reflect.Bool:
		return &schema{Type: []string{"boolean"}}
	case reflect.Float64:
		return &schema{Type: []string{"number"}}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return &schema{Type: []string{"integer"}}
	case reflect.Interface:
		return &schema{}
	}
	panic("no schema for " + t.String())
}

func nullable(s *schema) *schema {
	if s.Ref != "" {
		return &schema{AnyOf: []*schema{s, {Type: []string{"null"}}}}
	}
	s.Type = append(s.Type, "null")
	return s
}

// marshaled is the schema of a type that encodes itself.
func marshaled(t reflect.Type) *schema {
	data, err := json.Marshal(reflect.New(t).Interface())
	if err != nil {
		panic(err)
	}
	switch data[0] {
	case '"':
		return &schema{Type: []string{"string"}}
	case '{':
		return &schema{} // any object
	}
	return &schema{Type: []string{"number"}}
}

// nameOf is the type's name, after that of its package if it is another.
func nameOf(t reflect.Type) string {
	if pkg := path.Base(t.PkgPath()); pkg != "console" {
		return strings.ToUpper(pkg[:1]) + pkg[1:] + t.Name()
	}
	return t.Name()
}

func (all schemas) fields(t reflect.Type, s *schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			all.fields(embedded, s)
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		s.Properties[name] = all.of(f.Type)
		s.fields = append(s.fields, name)
		if options == "" {
			s.Required = append(s.Required, name)
		}
	}
}

// api are the schemas of all answers and events, and the document of the routes.
func api(c *Console) (schemas, []byte) {
	all := schemas{}
	problem := all.of(reflect.TypeFor[Problem]())
	answer := func(s *schema) map[string]any {
		return map[string]any{"application/json": map[string]any{"schema": s}}
	}
	paths := map[string]map[string]any{}
	for _, r := range c.routes() {
		parameters := []any{}
		for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(r.Path, -1) {
			parameters = append(parameters, map[string]any{
				"name": m[1], "in": "path", "required": true, "schema": &schema{Type: []string{"string"}},
			})
		}
		for _, q := range r.Query {
			s := &schema{Type: []string{"string"}}
			if q.Many {
				s = &schema{Type: []string{"array"}, Items: s}
			}
			parameters = append(parameters, map[string]any{"name": q.Name, "in": "query", "description": q.Description, "schema": s})
		}
		operation := map[string]any{
			"summary": r.Summary, "parameters": parameters, "responses": map[string]any{
				"200":     map[string]any{"description": "the answer", "content": answer(all.of(reflect.TypeOf(r.Answer)))},
				"default": map[string]any{"description": "why there is none", "content": answer(problem)},
			},
		}
		if r.Body != nil {
			operation["requestBody"] = map[string]any{"required": true, "content": answer(all.of(reflect.TypeOf(r.Body)))}
		}
		paths[r.Path] = map[string]any{strings.ToLower(r.Method): operation}
	}
	all.of(reflect.TypeFor[Change]())
	all.of(reflect.TypeFor[Recorded]())
	paths[apiRoot+"/events"] = map[string]any{"get": map[string]any{
		"summary": "Server-sent events: fleet (a Fleet) first, then change (a Change) for each change, recorded (a Recorded) " +
			"whenever the recording has other decisions, and beat every 10 s",
		"responses": map[string]any{
			"200":     map[string]any{"description": "a stream", "content": map[string]any{"text/event-stream": map[string]any{}}},
			"default": map[string]any{"description": "why there is none", "content": answer(problem)},
		},
	}}
	data, err := json.MarshalIndent(map[string]any{
		"openapi": "3.1.0", "info": map[string]any{"title": "Dovetail console", "version": "v1"}, "paths": paths,
		"components": map[string]any{"schemas": all},
	}, "", "  ")
	if err != nil {
		panic(err)
	}
	return all, append(data, '\n')
}

// typeScript declares the types of the answers.
func typeScript(all schemas) []byte {
	var b bytes.Buffer
	b.WriteString("// Generated from the handlers by UPDATE=1 go test ./internal/console. Do not edit.\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "\nexport interface %s {\n", name)
		for _, field := range all[name].fields {
			optional := "?"
			if slices.Contains(all[name].Required, field) {
				optional = ""
			}
			fmt.Fprintf(&b, "  %s%s: %s;\n", field, optional, all[name].Properties[field].typeScript())
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}

func (s *schema) typeScript() string {
	if s.Ref != "" {
		return strings.TrimPrefix(s.Ref, refPrefix)
	}
	var out []string
	for _, alternative := range s.AnyOf {
		out = append(out, alternative.typeScript())
	}
	for _, t := range s.Type {
		switch {
		case t == "array":
			t = s.Items.typeScript() + "[]"
		case t == "object" && s.Values != nil:
			t = "Record<string, " + s.Values.typeScript() + ">"
		case t == "integer":
			t = "number"
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return "unknown"
	}
	return strings.Join(out, " | ")
}

func TestTheDocumentAndTheTypesOfThePageAreThoseOfTheHandlers(t *testing.T) {
	all, want := api(New(Sources{}))
	for file, content := range map[string][]byte{"openapi.json": want, "../../console/src/api.gen.ts": typeScript(all)} {
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, content) {
			t.Errorf("%s is not what the handlers have: run UPDATE=1 go test ./internal/console, then make console", file)
		}
	}
}

// conforms returns where a value differs from a schema; empty if it conforms.
func (all schemas) conforms(s *schema, v any, at string) string {
	if s.Ref != "" {
		return all.conforms(all[strings.TrimPrefix(s.Ref, refPrefix)], v, at)
	}
	if len(s.AnyOf) > 0 {
		for _, alternative := range s.AnyOf {
			if all.conforms(alternative, v, at) == "" {
				return ""
			}
		}
		return at + " is none of its alternatives"
	}
	kind := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "number", reflect.Slice: "array", reflect.Map: "object",
		reflect.Invalid: "null",
	}[reflect.ValueOf(v).Kind()]
	if len(s.Type) > 0 && !slices.Contains(s.Type, kind) && (kind != "number" || !slices.Contains(s.Type, "integer")) {
		return fmt.Sprintf("%s is %s, not %s", at, kind, strings.Join(s.Type, " or "))
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			if wrong := all.conforms(s.Items, v[i], fmt.Sprintf("%s[%d]", at, i)); wrong != "" {
				return wrong
			}
		}
	case map[string]any:
		return all.fieldsConform(s, v, at)
	}
	return ""
}

func (all schemas) fieldsConform(s *schema, v map[string]any, at string) string {
	for _, name := range s.Required {
		if _, has := v[name]; !has {
			return at + " has no " + name
		}
	}
	for name, value := range v {
		field := s.Properties[name]
		if field == nil {
			field = s.Values
		}
		if field == nil && s.Properties != nil {
			return at + " has " + name + ", which the document does not have"
		}
		if field != nil {
			if wrong := all.conforms(field, value, at+"."+name); wrong != "" {
				return wrong
			}
		}
	}
	return ""
}
