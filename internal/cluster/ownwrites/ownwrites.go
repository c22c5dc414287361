// Package ownwrites lets a process see what it has written before its cache does.
//
// A NodeClaim is written by a dozen controllers of one process, many of them woken by the same change. Each write bears the version
// that was read, so while the cache lags, all but the first of them are refused, and so are their repetitions: most of all when
// hundreds of nodes join at once and the API server, which reads and patches the object before it refuses, is slow already. Others
// than this process hardly write NodeClaims, so what it has written last is nearly always the newest there is.
package ownwrites

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// kept is for how long a write is remembered that the cache does not show. The watch behind a cache is not given up for that long.
const kept = time.Minute

// Client is a client that reads from a cache. Of a NodeClaim that the cache has, it returns what was last written through it if
// that is newer. What a cache does not have, be it that it does not show it yet or that it is gone, is not found here either.
type Client struct {
	client.Client
	now func() time.Time

	mu sync.Mutex
	// written are the claims as they were after the last write, by name. They must not be changed.
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

// List reads objects. Which ones is up to the cache.
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

// write sends a patch and remembers the claim as it is then. The answer is read into an empty claim: read into the caller's, it
// would leave what is in that and not in the answer.
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

// remember keeps what a claim is after a write, which must not be changed any more.
func (c *Client) remember(claim *karpv1.NodeClaim) {
	claim.ManagedFields = nil // as in the cache
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.swept) > kept {
		for name, e := range c.written {
			if now.Sub(e.at) > kept {
				delete(c.written, name)
			}
		}
		c.swept = now
	}
	// Of two writes that are answered at the same time, the later one may be remembered already.
	if last, ok := c.written[claim.Name]; ok {
		if order, err := resourceversion.CompareResourceVersion(last.claim.ResourceVersion, claim.ResourceVersion); err == nil && order > 0 {
			return
		}
	}
	c.written[claim.Name] = entry{claim: claim, at: now}
}

// newer returns what was written of a claim since the cache has heard of it, nil if nothing was. It must not be changed.
func (c *Client) newer(cached *karpv1.NodeClaim) *karpv1.NodeClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.written[cached.Name]
	if !ok {
		return nil
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, last.claim.ResourceVersion)
	if err != nil || order >= 0 || last.claim.UID != cached.UID || c.now().Sub(last.at) > kept {
		delete(c.written, cached.Name)
		return nil
	}
	return last.claim
}
