package patch

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Taint adds a taint to the Node of that name, or removes it, with the version that was read as a precondition. It skips
// the cache: a cache that does not show the last change of the taint would make this one look unnecessary. A Node that
// is being deleted stays as it is.
func Taint(ctx context.Context, clients Clients, name string, taint corev1.Taint, present bool) error {
	clients.SkipCache = true
	node := &corev1.Node{}
	node.Name = name
	same := func(t corev1.Taint) bool { return t.MatchTaint(&taint) }
	return ObjectWithRetry(ctx, clients, node, func(n *corev1.Node) error {
		switch {
		case n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, same) == present:
		case present:
			n.Spec.Taints = append(n.Spec.Taints, taint)
		default:
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, same)
		}
		return nil
	})
}
