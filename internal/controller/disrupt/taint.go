package disrupt

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// patience is how often a write is tried that others get in the way of.
const patience = 4

// change reads an object from first and writes what edit does to it, if anything. Where the object has changed since it was read,
// it is read anew, from the API server itself.
func change[T client.Object](ctx context.Context, first, live client.Reader, o T, edit func(T) error, write func(T, client.Patch) error) error {
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

// setTaint puts the disrupted taint on the node, or takes it off. The cache is not asked: while it does not show that the taint was
// taken off a moment ago, or put there, nothing would seem to be left to do.
func setTaint(ctx context.Context, c client.Client, live client.Reader, name string, present bool) error {
	node := &corev1.Node{}
	node.Name = name
	return change(ctx, live, live, node, func(n *corev1.Node) error {
		switch {
		case n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, disrupted) == present:
		case present:
			n.Spec.Taints = append(n.Spec.Taints, karpv1.TaintDisrupted())
		default:
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, disrupted)
		}
		return nil
	}, func(n *corev1.Node, p client.Patch) error { return c.Patch(ctx, n, p) })
}

func disrupted(t corev1.Taint) bool {
	d := karpv1.TaintDisrupted()
	return t.MatchTaint(&d)
}
