package patch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how often a write is tried that others get in the way of.
const patience = 4

// Change reads an object from first and writes what edit does to it, if anything. Where the object has changed since it was read,
// it is read anew, from the API server itself. The error is a conflict if others were faster each time.
func Change[T client.Object](ctx context.Context, first, live client.Reader, o T, edit func(T) error, write func(T, client.Patch) error) error {
	key, from := client.ObjectKeyFromObject(o), first
	for try := 1; ; try++ {
		if err := from.Get(ctx, key, o); err != nil {
			return err
		}
		before := o.DeepCopyObject().(T)
		if err := edit(o); err != nil {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if data, err := patch.Data(o); err != nil || onlyVersion(data, before) {
			return err
		}
		err := write(o, patch)
		if !apierrors.IsConflict(err) || try == patience {
			return err
		}
		from = live
	}
}

// onlyVersion tells whether a patch with an optimistic lock changes nothing.
func onlyVersion(patch []byte, o client.Object) bool {
	return string(patch) == `{"metadata":{"resourceVersion":"`+o.GetResourceVersion()+`"}}`
}
