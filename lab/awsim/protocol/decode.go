package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query makes a Handler of a function that takes its parameters as a struct. The names of the parameters stand in the
// fields' tags:
//
//	InstanceIDs []string  `query:"InstanceId"`          InstanceId.1, InstanceId.2, ...
//	Name        string    `query:"Name,required"`       its absence is an error
//	Filters     []Filter  `query:"Filter"`              Filter.1.Name, Filter.1.Value.1, ...
//	Hibernation *struct{} `query:"Hibernation,unsupported"` known to the API, rejected by the simulator
//
// Fields are strings, integers, floats, bools, time.Time, []byte (base64), structs, pointers and slices of these; the
// fields of an embedded struct count as its own. A pointer distinguishes absent from zero. A parameter that no field names is
// an error, as is one that does not parse.
func Query[In, Out any](f func(r *Request, in *In) (*Out, error)) Handler {
	p := planOf(reflect.TypeFor[In]())
	return func(r *Request) (any, error) {
		in := new(In)
		d := decoder{query: r.Service != "ec2"}
		if err := d.structure(p, reflect.ValueOf(in).Elem(), treeOf(r.Form), ""); err != nil {
			return nil, err
		}
		return f(r, in)
	}
}

// JSON makes a Handler of a function that takes its parameters as a JSON object. Unknown members are an error.
func JSON[In, Out any](f func(r *Request, in *In) (*Out, error)) Handler {
	return func(r *Request) (any, error) {
		in := new(In)
		if len(bytes.TrimSpace(r.Body)) == 0 {
			return f(r, in)
		}
		d := json.NewDecoder(bytes.NewReader(r.Body))
		d.DisallowUnknownFields()
		if err := d.Decode(in); err != nil && !errors.Is(err, io.EOF) {
			return nil, Errorf("SerializationException", "%s", strings.TrimPrefix(err.Error(), "json: "))
		}
		return f(r, in)
	}
}

// plan is how a struct is filled, worked out once per type.
type plan struct {
	fields []planned
	named  map[string]bool
}

type planned struct {
	name                  string
	index                 []int
	required, unsupported bool
	value                 shape
}

// shape is the form of one value.
type shape struct {
	kind   reflect.Kind // of the value below pointers; Slice only for lists
	typ    reflect.Type
	nested *plan  // of a struct
	elem   *shape // of a list
}

func planOf(t reflect.Type) *plan {
	p := &plan{named: map[string]bool{}}
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("query")
		if tag == "" || !f.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		p.named[name] = true
		p.fields = append(p.fields, planned{
			name: name, index: f.Index, required: options == "required", unsupported: options == "unsupported", value: *shapeOf(f.Type),
		})
	}
	return p
}

func shapeOf(t reflect.Type) *shape {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := &shape{kind: t.Kind(), typ: t}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s.elem = shapeOf(t.Elem())
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]():
		s.nested = planOf(t)
	}
	return s
}

// tree is the parameters by the segments of their names.
type tree struct {
	value    string
	set      bool
	children map[string]*tree
}

func treeOf(form url.Values) *tree {
	root := &tree{}
	for name, values := range form {
		at := root
		for segment := range strings.SplitSeq(name, ".") {
			next := at.children[segment]
			if next == nil {
				if at.children == nil {
					at.children = map[string]*tree{}
				}
				next = &tree{}
				at.children[segment] = next
			}
			at = next
		}
		at.value, at.set = values[len(values)-1], true
	}
	return root
}

// decoder fills values; query selects the wording of IAM and STS over that of EC2.
type decoder struct{ query bool }

func (d decoder) structure(p *plan, v reflect.Value, t *tree, path string) error {
	if unknown := d.firstUnknown(p, t); unknown != "" {
		return d.unknown(join(path, unknown))
	}
	for i := range p.fields {
		f := &p.fields[i]
		sub := t.children[f.name]
		switch {
		case sub == nil && f.required:
			return d.missing(join(path, f.name))
		case sub == nil:
			continue
		case f.unsupported:
			return Errorf("UnsupportedOperation", "The simulator does not support the parameter %s", join(path, f.name))
		}
		if err := d.value(&f.value, v.FieldByIndex(f.index), sub, join(path, f.name)); err != nil {
			return err
		}
	}
	return nil
}

// firstUnknown returns the first parameter in order of names that the plan does not know.
func (d decoder) firstUnknown(p *plan, t *tree) string {
	var unknown []string
	for name := range t.children {
		if !p.named[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	return slices.Min(unknown)
}

func (d decoder) value(s *shape, v reflect.Value, t *tree, path string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(s.typ))
		v = v.Elem()
	}
	switch {
	case s.elem != nil:
		return d.list(s, v, t, path)
	case s.nested != nil:
		return d.structure(s.nested, v, t, path)
	}
	if len(t.children) > 0 {
		for name := range t.children {
			return d.unknown(join(path, name))
		}
	}
	if problem := scalar(v, t.value); problem != "" {
		return Errorf("InvalidParameterValue", "Invalid value '%s' for %s. %s", t.value, path, problem)
	}
	return nil
}

// list reads NAME.1, NAME.2, ... (NAME.member.1 in the older protocol); gaps are allowed, order is by number.
func (d decoder) list(s *shape, v reflect.Value, t *tree, path string) error {
	if member := t.children["member"]; member != nil && d.query {
		t, path = member, join(path, "member")
	}
	type item struct {
		at int
		t  *tree
	}
	items := make([]item, 0, len(t.children))
	for name, child := range t.children {
		at, err := strconv.Atoi(name)
		if err != nil || at < 0 {
			return d.unknown(join(path, name))
		}
		items = append(items, item{at, child})
	}
	if t.set && len(items) == 0 && t.value != "" {
		items = append(items, item{1, &tree{value: t.value, set: true}})
	}
	slices.SortFunc(items, func(a, b item) int { return a.at - b.at })
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, it := range items {
		if err := d.value(s.elem, v.Index(i), it.t, join(path, strconv.Itoa(it.at))); err != nil {
			return err
		}
	}
	return nil
}

// scalar sets v to the value of text, or returns what is wrong with the text.
func scalar(v reflect.Value, text string) (problem string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return "It must be 'true' or 'false'"
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return "It must be an integer"
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "It must be a number"
		}
		v.SetFloat(n)
	case reflect.Slice:
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return "It must be base64 encoded"
		}
		v.SetBytes(raw)
	case reflect.Struct:
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return "It must be a date-time in ISO 8601"
		}
		v.Set(reflect.ValueOf(at.UTC()))
	default:
		return "The simulator cannot read parameters of the kind " + v.Kind().String()
	}
	return ""
}

func (d decoder) unknown(name string) error {
	if d.query {
		return Errorf("ValidationError", "1 validation error detected: unknown parameter '%s'", name)
	}
	return Errorf("UnknownParameter", "The parameter %s is not recognized", name)
}

func (d decoder) missing(name string) error {
	if d.query {
		member := strings.ToLower(name[:1]) + name[1:]
		return Errorf(
			"ValidationError",
			"1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null",
			member,
		)
	}
	return Errorf("MissingParameter", "The request must contain the parameter %s", name)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
