package destroy

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// fleetAge is how old what Capacity returns may be: a thousand deletions in a minute read the claims once per second, not each.
const fleetAge = time.Second

// Capacity reads from the cache how much capacity there is. It is safe for concurrent use.
type Capacity struct {
	Client client.Reader
	Now    func() time.Time

	mu    sync.Mutex
	at    time.Time
	fleet Fleet
	pools map[string]*karpv1.NodePool
}

// Fleet returns the capacity by NodePool of the nodes that are not being deleted, and the NodePools by name. They are shared and must not
// be changed.
func (c *Capacity) Fleet(ctx context.Context) (Fleet, map[string]*karpv1.NodePool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	if age := now.Sub(c.at); c.fleet != nil && age >= 0 && age < fleetAge {
		return c.fleet, c.pools, nil
	}
	var claims karpv1.NodeClaimList
	if err := c.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	var list karpv1.NodePoolList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, nil, err
	}
	fleet, pools := Fleet{}, map[string]*karpv1.NodePool{}
	for i := range claims.Items {
		if claim := &claims.Items[i]; claim.DeletionTimestamp == nil {
			pool, size := claim.Labels[karpv1.LabelNodePool], capacityOf(claim)
			fleet[Cluster] = fleet[Cluster].plus(size)
			if pool != Cluster {
				fleet[pool] = fleet[pool].plus(size)
			}
		}
	}
	for i := range list.Items {
		pools[list.Items[i].Name] = &list.Items[i]
	}
	c.at, c.fleet, c.pools = now, fleet, pools
	return fleet, pools, nil
}
