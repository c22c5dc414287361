// Package kubeletconfig knows the fields that a KubeletConfiguration of kubelet.config.k8s.io/v1beta1 has, and finds those
// that it has not. A kubelet does not start with a field that it does not know: its node would never join.
//
// The fields are data, in fields.txt. They are those of the Kubernetes version that this program is built for; the lab,
// which is built with the kubelet's own types, compares them.
package kubeletconfig

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// fields has a line for each field: its path and its kind. Below a list's or a map's path, [] or {} is its element.
//
//go:embed fields.txt
var fields string

// kinds are the kinds of fields, by path.
func kinds() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(fields) {
		path, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[path] = kind
	}
	return out
}

// Check says which fields of a configuration in JSON a kubelet would not take. maxPods may be a string, too: an expression.
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
	c := checker{kinds: kinds()}
	c.object("", object)
	return errors.Join(c.errs...)
}

type checker struct {
	kinds map[string]string
	errs  []error
}

func (c *checker) object(path string, object map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		if _, known := c.kinds[at]; !known {
			c.errs = append(c.errs, fmt.Errorf("unknown field %q", at))
			continue
		}
		c.value(at, object[key])
	}
}

// value checks what is at a path of fields.txt. Null sets nothing.
func (c *checker) value(path string, value any) {
	if value == nil {
		return
	}
	switch kind := c.kinds[path]; kind {
	case "object":
		if object, ok := value.(map[string]any); ok {
			c.object(path, object)
			return
		}
	case "list":
		if list, ok := value.([]any); ok {
			for _, v := range list {
				c.value(path+"[]", v)
			}
			return
		}
	case "map":
		if m, ok := value.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(m)) {
				c.value(path+"{}", m[key])
			}
			return
		}
	default:
		if is(kind, value) {
			return
		}
	}
	c.errs = append(c.errs, fmt.Errorf("%s is not %s", path, kindNames[c.kinds[path]]))
}

// names are the kinds in words.
var kindNames = map[string]string{
	"object": "an object", "list": "a list", "map": "a map", "string": "a string", "boolean": "true or false", "integer": "a whole number",
	"number": "a number", "duration": "a duration such as 1m30s", "quantity": "a quantity",
}

func is(kind string, value any) bool {
	text, isText := value.(string)
	number, isNumber := value.(float64)
	switch kind {
	case "string":
		return isText
	case "boolean":
		_, ok := value.(bool)
		return ok
	case "integer":
		return isNumber && number == float64(int64(number))
	case "number":
		return isNumber
	case "duration":
		_, err := time.ParseDuration(text)
		return isText && err == nil
	case "quantity":
		if isNumber {
			text = strconv.FormatFloat(number, 'f', -1, 64)
		}
		_, err := resource.ParseQuantity(text)
		return (isText || isNumber) && err == nil
	default:
		return kind == "any"
	}
}
