package crdtest

import (
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// step is one part of a field's path: a property, or an index into a list.
type step struct {
	property string
	index    int
	isIndex  bool
}

// parseField splits spec.taints[0].key.
func parseField(field string) (steps []step, err error) {
	for part := range strings.SplitSeq(field, ".") {
		name, indexes, _ := strings.Cut(part, "[")
		steps = append(steps, step{property: name})
		if indexes == "" {
			continue
		}
		i, err := strconv.Atoi(strings.TrimSuffix(indexes, "]"))
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", field, err)
		}
		steps = append(steps, step{index: i, isIndex: true})
	}
	return steps, nil
}

// set puts value at the steps below node and returns node, or what stands in its place. Objects are merged,
// nil removes.
func set(node any, steps []step, value any) (any, error) {
	if len(steps) == 0 {
		return merge(node, value), nil
	}
	s := steps[0]
	if s.isIndex {
		items, ok := node.([]any)
		if !ok || s.index >= len(items) {
			return nil, fmt.Errorf("no item %d in %v", s.index, node)
		}
		item, err := set(items[s.index], steps[1:], value)
		items[s.index] = item
		return items, err
	}
	if node == nil {
		node = map[string]any{}
	}
	properties, ok := node.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%v has no property %q", node, s.property)
	}
	child, err := set(properties[s.property], steps[1:], value)
	if child == nil {
		delete(properties, s.property)
	} else {
		properties[s.property] = child
	}
	return properties, err
}

// merge is JSON merge patch.
func merge(into, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	properties, ok := into.(map[string]any)
	if !ok {
		properties = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(properties, key)
		} else {
			properties[key] = merge(properties[key], value)
		}
	}
	return properties
}

func parse(text string) (value any, err error) {
	err = yaml.Unmarshal([]byte(text), &value)
	return value, err
}

// build is the kind's full object with the row's given part, and then value at the row's field.
func build(full string, r ruleExample, value string) (map[string]any, error) {
	object, err := parse(full)
	if err != nil {
		return nil, err
	}
	if r.given != "" {
		given, err := parse(r.given)
		if err != nil {
			return nil, fmt.Errorf("given: %w", err)
		}
		object = merge(object, given)
	}
	if value != "" {
		v, err := parse(value)
		if err != nil {
			return nil, fmt.Errorf("value %s: %w", value, err)
		}
		steps, err := parseField(r.field)
		if err != nil {
			return nil, err
		}
		if object, err = set(object, steps, v); err != nil {
			return nil, err
		}
	}
	return object.(map[string]any), nil
}
