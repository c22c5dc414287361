// Package ownwrites provides read-your-writes consistency for NodeClaims on top of a cache.
//
// A dozen controllers of one process write NodeClaims, many of them after the same change. Each write is locked to the
// version that was read, so while the cache lags, the API server rejects all but the first of them, and their retries.
// That matters most when hundreds of nodes join at once and the API server, which reads and patches the object before
// it rejects, is slow already. Other processes rarely write NodeClaims, so the last write of this process is nearly
// always the newest version.
package ownwrites

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// retention sets how long a write is kept that the cache does not show: a watch recovers from an interruption within that
// time.
const retention = time.Minute

// Client is a client that reads from a cache. For a NodeClaim in the cache, it returns the result of the last write
// through this client if that is newer. A claim that is not in the cache, because it is too new or deleted, is not
// found here either.
type Client struct {
	client.Client
	now func() time.Time

	mu sync.Mutex
	// written are the claims after their last write, by name. They must not be changed.
	written map[string]entry
	swept   time.Time
}

type entry struct {
	claim *karpv1.NodeClaim
	at    time.Time
}

// New returns a Client on top of c.
func New(c client.Client, now func() time.Time) *Client {
	return &Client{Client: c, now: now, written: map[string]entry{}}
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	if claim, ok := o.(*karpv1.NodeClaim); ok {
		if newer := c.newer(claim); newer != nil {
			newer.DeepCopyInto(claim)
		}
	}
	return nil
}

// List reads objects. The cache selects them.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	if claims, ok := list.(*karpv1.NodeClaimList); ok {
		for i := range claims.Items {
			if newer := c.newer(&claims.Items[i]); newer != nil {
				claims.Items[i] = *newer.DeepCopy()
			}
		}
	}
	return nil
}

// Claims are the NodeClaims of a cache without copies, with the last write of Client in the place of those that it shows late.
type Claims struct {
	Cached interface {
		List(ctx context.Context) ([]*karpv1.NodeClaim, error)
	}
	Client *Client
}

// List returns NodeClaims that are shared and must not be changed.
func (c Claims) List(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	claims, err := c.Cached.List(ctx)
	for i, claim := range claims {
		if newer := c.Client.newer(claim); newer != nil {
			claims[i] = newer
		}
	}
	return claims, err
}

// Patch changes an object.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	claim, ok := o.(*karpv1.NodeClaim)
	if !ok || len(opts) > 0 {
		return c.Client.Patch(ctx, o, patch, opts...)
	}
	return c.write(claim, patch, func(o client.Object, p client.Patch) error { return c.Client.Patch(ctx, o, p) })
}

// Status writes the status of objects.
func (c *Client) Status() client.SubResourceWriter { return status{c.Client.Status(), c} }

type status struct {
	client.SubResourceWriter
	c *Client
}

// Patch changes the status of an object.
func (s status) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	claim, ok := o.(*karpv1.NodeClaim)
	if !ok || len(opts) > 0 {
		return s.SubResourceWriter.Patch(ctx, o, patch, opts...)
	}
	return s.c.write(claim, patch, func(o client.Object, p client.Patch) error { return s.SubResourceWriter.Patch(ctx, o, p) })
}

// write sends a patch and keeps the resulting claim. It decodes the response into an empty claim: decoding into the
// caller's claim would keep fields that the response does not have.
func (c *Client) write(claim *karpv1.NodeClaim, patch client.Patch, send func(client.Object, client.Patch) error) error {
	data, err := patch.Data(claim)
	if err != nil {
		return err
	}
	answer := &karpv1.NodeClaim{}
	answer.Name = claim.Name
	if err := send(answer, client.RawPatch(patch.Type(), data)); err != nil {
		return err
	}
	c.remember(answer)
	answer.DeepCopyInto(claim)
	return nil
}

// remember keeps a claim after a write. The claim must not be changed afterwards.
func (c *Client) remember(claim *karpv1.NodeClaim) {
	claim.ManagedFields = nil // as in the cache
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.swept) > retention {
		for name, e := range c.written {
			if now.Sub(e.at) > retention {
				delete(c.written, name)
			}
		}
		c.swept = now
	}
	// Responses of two concurrent writes may arrive in either order: keep the newer one.
	if last, ok := c.written[claim.Name]; ok {
		if order, err := resourceversion.CompareResourceVersion(last.claim.ResourceVersion, claim.ResourceVersion); err == nil && order > 0 {
			return
		}
	}
	c.written[claim.Name] = entry{claim: claim, at: now}
}

// newer returns the last written version of a claim if it is newer than the cached one, else nil. It must not be
// changed.
func (c *Client) newer(cached *karpv1.NodeClaim) *karpv1.NodeClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.written[cached.Name]
	if !ok {
		return nil
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, last.claim.ResourceVersion)
	if err != nil || order >= 0 || last.claim.UID != cached.UID || c.now().Sub(last.at) > retention {
		delete(c.written, cached.Name)
		return nil
	}
	return last.claim
}
