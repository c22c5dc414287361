package disruption

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
)

// setTaint adds the disruption taint to the node, or removes it.
func setTaint(ctx context.Context, c client.Client, live client.Reader, name string, present bool) error {
	return patch.Taint(ctx, patch.Clients{Client: c, Live: live}, name, karpv1.TaintDisrupted(), present)
}
