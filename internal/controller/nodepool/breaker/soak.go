package breaker

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
)

// soaks judges the nodes of pools.
type soaks struct {
	client client.Reader
	rules  Rules
}

// read judges the claims of a pool that were launched with what pool and class are now.
func (s soaks) read(
	ctx context.Context, pool *karpv1.NodePool, class *awsv1.EC2NodeClass, claims []*karpv1.NodeClaim, now time.Time,
) (breaker.Fleet, error) {
	health := func(claim *karpv1.NodeClaim) (breaker.Health, error) {
		nodes, err := cluster.SharedNodesOf(ctx, s.client, claim.Status.ProviderID)
		if err != nil {
			return breaker.Health{}, fmt.Errorf("read the node of node claim %q: %w", claim.Name, err)
		}
		if len(nodes) == 0 {
			return breaker.NoNode(now), nil
		}
		return breaker.HealthOf(&nodes[0], s.rules.Faults), nil
	}
	return breaker.Members{Pool: pool, Class: class, Claims: claims, Health: health, Windows: s.rules.Windows}.Judge(now)
}
