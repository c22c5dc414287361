package cluster

import (
	"context"

	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// ClaimsShown returns a function for Config.ClaimsShown: the version of the last change of NodeClaims that an informer has received. Its
// store shows the change at the same time or a moment later.
func ClaimsShown(informers ctrlcache.Informers) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		informer, err := informers.GetInformer(ctx, &karpv1.NodeClaim{})
		if err != nil {
			return ""
		}
		shared, ok := informer.(interface{ LastSyncResourceVersion() string })
		if !ok {
			return ""
		}
		return shared.LastSyncResourceVersion()
	}
}
