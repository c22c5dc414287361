package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StatusIfSame is StatusFrom for a change that rests on nothing in the metadata. Its precondition is that the object is the same and is
// not being deleted, and that the fields of the status that it writes are those that were read. So another writer's annotation costs no
// conflict: while nodes join, several controllers write different parts of a NodeClaim within the same second. If the precondition
// does not hold, the change is sent as by StatusFrom, and refused with a conflict.
func StatusIfSame(ctx context.Context, c client.Client, before, o client.Object) (written bool, err error) {
	if !differ(before, o, func(field string) bool { return field == statusField }) {
		return false, nil
	}
	operations, err := statusOperations(before, o)
	if err != nil {
		return false, err
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return false, err
	}
	err = c.Status().Patch(ctx, o, client.RawPatch(types.JSONPatchType, data))
	if apierrors.IsInvalid(err) { // the API server calls a failed test invalid
		return StatusFrom(ctx, c, before, o)
	}
	return err == nil, err
}

// statusOperations are the changes of the status from before to after, field by field, with their preconditions.
func statusOperations(before, after client.Object) ([]operation, error) {
	had, err := statusFields(before)
	if err != nil {
		return nil, err
	}
	has, err := statusFields(after)
	if err != nil {
		return nil, err
	}
	out := []operation{
		{"test", "/metadata/uid", before.GetUID()},
		{"test", "/metadata/deletionTimestamp", before.GetDeletionTimestamp()},
	}
	names := maps.Clone(had)
	maps.Copy(names, has)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := had[name], has[name] // nil if absent, which equals null
		if equality.Semantic.DeepEqual(was, is) {
			continue
		}
		path := "/status/" + pointerEscapes.Replace(name)
		out = append(out, operation{"test", path, was})
		if is == nil {
			out = append(out, operation{Op: "remove", Path: path})
		} else {
			out = append(out, operation{"add", path, is})
		}
	}
	return out, nil
}

// statusFields are the fields of an object's status as JSON has them, by name.
func statusFields(o client.Object) (map[string]any, error) {
	data, err := json.Marshal(reflect.ValueOf(o).Elem().FieldByName(statusField).Interface())
	if err != nil {
		return nil, fmt.Errorf("encode the status of %T %q: %w", o, o.GetName(), err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("decode the status of %T %q: %w", o, o.GetName(), err)
	}
	return fields, nil
}
