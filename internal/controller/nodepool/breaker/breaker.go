// Package breaker is a circuit breaker for replacements: when too many of the nodes launched to replace others for one
// reason fail to become ready, it pauses that reason in the NodePool. The condition DisruptionPaused and an event
// report it. The rules for pausing and resuming are in engine/breaker.
package breaker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
)

// showsWithin is how long a new claim takes, at most, to appear in the cache.
const showsWithin = time.Minute

// Breaker decides whether nodes of a pool may be replaced. It is safe for concurrent use.
type Breaker struct {
	client client.Reader
	now    func() time.Time

	mu sync.Mutex
	// started is when a replacement was last started.
	started map[key]time.Time
}

type key struct {
	pool   string
	reason karpv1.DisruptionReason
}

// New returns a Breaker that reads pools and claims from c.
func New(c client.Reader, now func() time.Time) *Breaker {
	return &Breaker{client: c, now: now, started: map[key]time.Time{}}
}

// Open reports whether nodes must not be replaced for the reason now, and why. Callers check it before a replacement
// starts, for each pool that loses or gets a node. A pool that does not exist, or with the breaker turned off, blocks
// nothing.
func (b *Breaker) Open(ctx context.Context, pool string, reason karpv1.DisruptionReason) (why string, open bool) {
	p := &karpv1.NodePool{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return "", false
		}
		return fmt.Sprintf("cannot read whether nodes of pool %q become ready: %v", pool, err), true
	}
	book := breaker.Read(p)
	var inFlight []time.Time
	if len(book.Paused()) > 0 {
		claims, err := replacements(ctx, b.client, pool)
		if err != nil {
			return fmt.Sprintf("cannot read whether nodes of pool %q become ready: %v", pool, err), true
		}
		inFlight = b.inFlight(claims, key{pool, reason})
	}
	switch book.State(reason, inFlight, b.now()) {
	case breaker.Open:
		return book.PauseMessage(reason), true
	case breaker.Probing:
		return book.PauseMessage(reason) + "; one is being tried", true
	default:
		return "", false
	}
}

// Halted reports whether a replacement for the reason that started at a time must be canceled, and why: the reason has
// been paused since. While a pool cannot be read, nothing is canceled.
func (b *Breaker) Halted(ctx context.Context, pool string, reason karpv1.DisruptionReason, started time.Time) (why string, halted bool) {
	p := &karpv1.NodePool{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
		return "", false
	}
	book := breaker.Read(p)
	return book.PauseMessage(reason), book.Blocks(reason, started)
}

// Started records the start of a replacement: while the reason is paused, one is tried at a time, and the cache does
// not show a new claim at once.
func (b *Breaker) Started(pool string, reason karpv1.DisruptionReason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started[key{pool, reason}] = b.now()
}

// inFlight returns the start times of replacements for the reason that have no outcome yet.
func (b *Breaker) inFlight(claims []karpv1.NodeClaim, k key) []time.Time {
	now := b.now()
	var out []time.Time
	for i := range claims {
		c := &claims[i]
		if breaker.Reason(c) != k.reason || c.DeletionTimestamp != nil {
			continue
		}
		if _, decided, _ := breaker.OutcomeOf(c, now); !decided {
			out = append(out, c.CreationTimestamp.Time)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if at, ok := b.started[k]; ok && now.Sub(at) < showsWithin {
		out = append(out, at)
	}
	return out
}

// replacements returns the claims of a pool that were launched to replace others.
func replacements(ctx context.Context, r client.Reader, pool string) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := r.List(ctx, &list, client.MatchingLabels{karpv1.LabelNodePool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var out []karpv1.NodeClaim
	for i := range list.Items {
		if c := &list.Items[i]; breaker.Reason(c) != "" { // few are: only these are copied
			out = append(out, *c.DeepCopy())
		}
	}
	return out, nil
}
