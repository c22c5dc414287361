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
	"reflect"

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
	if !differ(before, o, func(field string) bool { return field != statusField }) {
		return false, nil
	}
	err = c.Patch(ctx, o, Locked(before))
	return err == nil, err
}

// StatusFrom is Status for a caller that copied the object before it began to change it.
func StatusFrom(ctx context.Context, c client.Client, before, o client.Object) (written bool, err error) {
	if !differ(before, o, func(field string) bool { return field == statusField }) {
		return false, nil
	}
	err = c.Status().Patch(ctx, o, Locked(before))
	return err == nil, err
}

// statusField is the field that a write of the status sends; a write of the object sends the others.
const statusField = "Status"

// differ reports whether two objects of one type differ in any of the selected fields. The resource version does not
// count. Most reconciles change nothing: the comparison in memory spares them two JSON encodings.
func differ(before, after client.Object, selected func(field string) bool) bool {
	if version := after.GetResourceVersion(); version != before.GetResourceVersion() {
		before = copyOf(before)
		before.SetResourceVersion(version)
	}
	a, b := reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem()
	for i := range a.NumField() {
		if selected(a.Type().Field(i).Name) && !equality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return true
		}
	}
	return false
}

func copyOf[T client.Object](o T) T { return o.DeepCopyObject().(T) }
