package nodeclaim

import (
	"context"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// listingTTL sets how long one listing of all instances answers for single ones, and how old it may be at the beginning. Claims are
// compared every few minutes, so that two minutes at most serve all of one round, and are short against the round.
const listingTTL = time.Minute

// listingBackoff sets how long EC2 is not called for a listing again after it has failed. Without it, each of a thousand claims
// would repeat the call that EC2 has just throttled.
const listingBackoff = 5 * time.Second

// instanceCache is the last listing of all instances, so that reading each of a thousand takes a few calls and not a thousand.
type instanceCache struct {
	list func(ctx context.Context) ([]cloudprovider.Instance, error)
	// get returns one instance, without a call where it can.
	get func(ctx context.Context, providerID string) (cloudprovider.Instance, error)
	now func() time.Time

	mu   sync.Mutex
	at   time.Time
	byID map[string]cloudprovider.Instance
	// failed is the time when the last listing failed, and err why; err is nil if it did not.
	failed time.Time
	err    error
}

// instance returns an instance as EC2 described it within listingTTL. One that is not in the listing may be newer: it is read by
// itself, in one call with others that are read at the same time, and is cached until the next listing.
func (c *instanceCache) instance(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	i, known, err := c.listed(ctx, providerID)
	if known || err != nil {
		return i, err
	}
	if i, err = c.get(ctx, providerID); err != nil {
		return cloudprovider.Instance{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID[providerID] = i
	return i, nil
}

// listed returns an instance of the last listing, which it renews after listingTTL.
func (c *instanceCache) listed(ctx context.Context, providerID string) (i cloudprovider.Instance, known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock() // callers that arrive meanwhile wait for the one listing
	if c.byID == nil || c.now().Sub(c.at) >= listingTTL {
		at := c.now()
		if c.err != nil && at.Sub(c.failed) < listingBackoff {
			return cloudprovider.Instance{}, false, c.err
		}
		all, err := c.list(ctx)
		if c.err = err; ctx.Err() != nil {
			c.err = nil // the caller has left: EC2 did not fail
		}
		if err != nil {
			c.failed = c.now()
			return cloudprovider.Instance{}, false, err
		}
		c.at, c.byID = at, make(map[string]cloudprovider.Instance, len(all))
		for _, i := range all {
			c.byID[i.ProviderID] = i
		}
	}
	i, known = c.byID[providerID]
	return i, known, nil
}
