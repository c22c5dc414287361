package disruption

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// setTaint adds the disruption taint to the node, or removes it. It skips the cache: a cache that does not show the
// last change of the taint would make this one look unnecessary.
func setTaint(ctx context.Context, c client.Client, live client.Reader, name string, present bool) error {
	node := &corev1.Node{}
	node.Name = name
	return patch.ObjectWithRetry(ctx, patch.Clients{Client: c, Live: live, SkipCache: true}, node, func(n *corev1.Node) error {
		switch {
		case n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, isDisruptionTaint) == present:
		case present:
			n.Spec.Taints = append(n.Spec.Taints, karpv1.TaintDisrupted())
		default:
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, isDisruptionTaint)
		}
		return nil
	})
}

func isDisruptionTaint(t corev1.Taint) bool {
	d := karpv1.TaintDisrupted()
	return t.MatchTaint(&d)
}
