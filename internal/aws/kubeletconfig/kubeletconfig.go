// Package kubeletconfig checks spec.kubelet against the fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1). A
// kubelet does not start with an unknown field, so its node would never join.
//
// The known fields are those of the k8s.io/kubelet version in go.mod.
package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Check returns an error for each field of a JSON configuration that a kubelet rejects: unknown fields and fields of
// another type. It accepts a string for maxPods, because an expression is one.
//
// A strict decoder would find the same fields, but it stops at the first field of a wrong type, and does not name the
// path of a duration or quantity that it cannot parse.
func Check(raw []byte) error {
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		return err
	}
	object, ok := root.(map[string]any)
	if !ok {
		return errors.New("it is not an object")
	}
	if _, isText := object["maxPods"].(string); isText {
		object["maxPods"] = 0.0
	}
	var c checker
	c.object("", reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), object)
	return errors.Join(c.errs...)
}

// checker collects the errors of a configuration.
type checker struct{ errs []error }

func (c *checker) object(path string, t reflect.Type, object map[string]any) {
	known := fields(t)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		field, ok := known[key]
		if !ok {
			c.errs = append(c.errs, fmt.Errorf("unknown field %q", at))
			continue
		}
		c.value(at, field, object[key])
	}
}

// fields returns the types of a struct's fields by their name in JSON. Names are case-sensitive, as they are to a kubelet.
func fields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && f.IsExported() {
			out[name] = f.Type
		}
	}
	return out
}

// value checks a value against the type of its field. Null sets nothing. The path of an element finishes in [] or {}.
func (c *checker) value(path string, t reflect.Type, value any) {
	if value == nil {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := kindOf(t)
	switch kind {
	case object:
		if v, ok := value.(map[string]any); ok {
			c.object(path, t, v)
			return
		}
	case list:
		if v, ok := value.([]any); ok {
			for _, element := range v {
				c.value(path+"[]", t.Elem(), element)
			}
			return
		}
	case mapping:
		if v, ok := value.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(v)) {
				c.value(path+"{}", t.Elem(), v[key])
			}
			return
		}
	default:
		if kind.accepts(value) {
			return
		}
	}
	c.errs = append(c.errs, fmt.Errorf("%s is not %s", path, kind))
}

// kind is the kind of JSON value that a field takes, in the words of an error message.
type kind string

const (
	object   kind = "an object"
	list     kind = "a list"
	mapping  kind = "a map"
	text     kind = "a string"
	boolean  kind = "true or false"
	integer  kind = "a whole number"
	number   kind = "a number"
	duration kind = "a duration such as 1m30s"
	quantity kind = "a quantity"
	// anything is decoded by the type itself.
	anything kind = "a value that the kubelet accepts"
)

// kindOf returns the kind of a type that is not a pointer.
func kindOf(t reflect.Type) kind {
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return duration
	case reflect.TypeFor[resource.Quantity]():
		return quantity
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return anything
	}
	switch t.Kind() {
	case reflect.String:
		return text
	case reflect.Bool:
		return boolean
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return integer
	case reflect.Float64:
		return number
	case reflect.Slice:
		return list
	case reflect.Map:
		return mapping
	case reflect.Struct:
		return object
	}
	return anything
}

// accepts reports whether a scalar of JSON is of the kind.
func (k kind) accepts(value any) bool {
	s, isText := value.(string)
	n, isNumber := value.(float64)
	switch k {
	case text:
		return isText
	case boolean:
		_, ok := value.(bool)
		return ok
	case integer:
		return isNumber && n == float64(int64(n))
	case number:
		return isNumber
	case duration:
		_, err := time.ParseDuration(s)
		return isText && err == nil
	case quantity:
		if isNumber {
			s = strconv.FormatFloat(n, 'f', -1, 64)
		}
		_, err := resource.ParseQuantity(s)
		return (isText || isNumber) && err == nil
	}
	return k == anything
}
