package disruption

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// setTaint puts the disrupted taint on the node, or takes it off. The cache is not asked: while it does not show that the taint was
// taken off a moment ago, or put there, nothing would seem to be left to do.
func setTaint(ctx context.Context, c client.Client, live client.Reader, name string, present bool) error {
	node := &corev1.Node{}
	node.Name = name
	return patch.Change(ctx, live, live, node, func(n *corev1.Node) error {
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
