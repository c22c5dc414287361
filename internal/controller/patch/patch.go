// Package patch writes objects under optimistic locking and makes a lost race an ordinary outcome.
//
// Every write carries the resource version that was read, so that it never overwrites what another writer did in the
// meantime. A write that changes nothing is not sent. Three ways lead on from a conflict:
//   - Object, Status, ObjectFrom and StatusFrom return it. The caller decides anew, usually in its next reconcile.
//   - ObjectWithRetry and StatusWithRetry read the object again and repeat the change.
//   - Retry wraps a reconciler and requeues the request after a short backoff, without an error in the log.
package patch

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object applies mutate to o and writes what it changed outside o's status. It reports whether it wrote anything. After
// a write o holds the server's answer.
func Object(ctx context.Context, c client.Client, o client.Object, mutate func()) (written bool, err error) {
	before := copyOf(o)
	mutate()
	return ObjectFrom(ctx, c, before, o)
}

// Status applies mutate to o and writes what it changed in o's status. It reports whether it wrote anything. After a
// write o holds the server's answer.
func Status(ctx context.Context, c client.Client, o client.Object, mutate func()) (written bool, err error) {
	before := copyOf(o)
	mutate()
	return StatusFrom(ctx, c, before, o)
}

// ObjectFrom is Object for a caller that copied the object before it began to change it.
func ObjectFrom(ctx context.Context, c client.Client, before, o client.Object) (written bool, err error) {
	p, err := diff(before, o, objectChanged)
	if p == nil || err != nil {
		return false, err
	}
	err = c.Patch(ctx, o, p)
	return err == nil, err
}

// StatusFrom is Status for a caller that copied the object before it began to change it.
func StatusFrom(ctx context.Context, c client.Client, before, o client.Object) (written bool, err error) {
	p, err := diff(before, o, statusChanged)
	if p == nil || err != nil {
		return false, err
	}
	err = c.Status().Patch(ctx, o, p)
	return err == nil, err
}

// diff returns the merge patch from before to after, locked to before's resource version; nil if the part of the object
// that changed selects is the same. Most reconciles change nothing: the comparison in memory spares them two JSON
// encodings.
func diff(before, after client.Object, changed func(fields map[string]json.RawMessage) bool) (client.Patch, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return nil, nil
	}
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	data, err := p.Data(after)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("decode the patch of %s %q: %w", after.GetObjectKind().GroupVersionKind().Kind, after.GetName(), err)
	}
	if !changed(fields) {
		return nil, nil
	}
	return client.RawPatch(p.Type(), data), nil
}

// objectChanged reports whether a patch changes anything but the status; the resource version in it is only the lock.
func objectChanged(fields map[string]json.RawMessage) bool {
	for key, value := range fields {
		switch key {
		case "status":
		case "metadata":
			var metadata map[string]json.RawMessage
			if json.Unmarshal(value, &metadata) != nil || len(metadata) > 1 || metadata["resourceVersion"] == nil {
				return true
			}
		default:
			return true
		}
	}
	return false
}

func statusChanged(fields map[string]json.RawMessage) bool {
	_, ok := fields["status"]
	return ok
}

func copyOf[T client.Object](o T) T { return o.DeepCopyObject().(T) }
