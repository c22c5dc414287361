// Package breaker keeps a fault that new nodes share from going through a whole pool: when too many of the nodes that were
// launched to replace others, for one reason, do not come up, that reason pauses in the pool. The NodePool says so in the
// condition DisruptionPaused and an event. When it pauses and when it goes on is decided in engine/breaker.
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

// showsWithin is how long a claim that was made takes, at most, to show in the cache.
const showsWithin = time.Minute

// Breaker tells whether nodes of a pool may be replaced. It is safe for concurrent use.
type Breaker struct {
	client client.Reader
	now    func() time.Time

	mu sync.Mutex
	// started are the times at which somebody has last begun to replace nodes.
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

// Open reports whether nodes must not be replaced for the reason now, and why. It is to be asked before replacing begins, for
// each pool of a node that would go and of one that would come. A pool that is not known, or has the breaker turned off,
// holds nothing back.
func (b *Breaker) Open(ctx context.Context, pool string, reason karpv1.DisruptionReason) (why string, open bool) {
	p := &karpv1.NodePool{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return "", false
		}
		return fmt.Sprintf("whether nodes of pool %q come up cannot be told: %v", pool, err), true
	}
	book := breaker.Read(p)
	var underWay []time.Time
	if len(book.Paused()) > 0 {
		claims, err := replacements(ctx, b.client, pool)
		if err != nil {
			return fmt.Sprintf("whether nodes of pool %q come up cannot be told: %v", pool, err), true
		}
		underWay = b.underWay(claims, key{pool, reason})
	}
	switch book.Standing(reason, underWay, b.now()) {
	case breaker.Open:
		return book.Why(reason), true
	case breaker.Probing:
		return book.Why(reason) + "; one is being tried", true
	default:
		return "", false
	}
}

// Halted reports whether replacing for the reason that began at a time is to be taken back, and why: the reason has paused since.
// While a pool cannot be read, nothing is taken back.
func (b *Breaker) Halted(ctx context.Context, pool string, reason karpv1.DisruptionReason, started time.Time) (why string, halted bool) {
	p := &karpv1.NodePool{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
		return "", false
	}
	book := breaker.Read(p)
	return book.Why(reason), book.Halts(reason, started)
}

// Started notes that replacing begins: while the reason pauses, one is tried at a time, and what has just been made does not
// show yet.
func (b *Breaker) Started(pool string, reason karpv1.DisruptionReason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started[key{pool, reason}] = b.now()
}

// underWay are the times at which replacing for the reason has begun that has come to nothing yet.
func (b *Breaker) underWay(claims []karpv1.NodeClaim, k key) []time.Time {
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

// replacements are the claims of a pool that were bought to replace others.
func replacements(ctx context.Context, r client.Reader, pool string) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := r.List(ctx, &list, client.MatchingLabels{karpv1.LabelNodePool: pool}); err != nil {
		return nil, err
	}
	var out []karpv1.NodeClaim
	for _, c := range list.Items {
		if breaker.Reason(&c) != "" {
			out = append(out, c)
		}
	}
	return out, nil
}
