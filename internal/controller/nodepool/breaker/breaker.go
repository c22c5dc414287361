// Package breaker is a circuit breaker for replacements: when too many of the nodes launched to replace others for one
// reason fail to become ready, it pauses that reason in the NodePool. When new nodes become ready and fail soon after, it
// pauses all reasons, and while none of an image has stayed ready for a while, a few are replaced at most. The condition
// DisruptionPaused of NodePool and EC2NodeClass, and an event, report it. The rules for pausing and resuming are in
// engine/breaker.
package breaker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/pace"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

// showsWithin sets how long a new claim takes, at most, to appear in the cache.
const showsWithin = time.Minute

// Breaker decides whether nodes of a pool may be replaced. It is safe for concurrent use.
type Breaker struct {
	client client.Reader
	soaks  soaks
	// threshold counts how many nodes must fail to pause a reason, and how many nodes of a new image are tried first.
	threshold int
	now       func() time.Time

	mu sync.Mutex
	// started is the time when a replacement was last started.
	started map[key]time.Time
	// recent are all starts in a pool of the last minute.
	recent map[string][]time.Time
}

type key struct {
	pool   string
	reason karpv1.DisruptionReason
}

// Rules describes how nodes are judged: the same for Breaker and Reconciler.
type Rules struct {
	// Threshold counts how many replacements must fail to pause a reason, and how many nodes of a new image are tried first; 0 turns the
	// breaker off.
	Threshold int
	// Faults are the conditions of nodes that repair acts on; nil for none but Ready.
	Faults *repair.Policies
	// Windows states how long new nodes are watched.
	Windows breaker.Windows
	// Pace divides the waits of roll-outs with canaries, where AWS is simulated.
	Pace pace.Pace
}

// New returns a Breaker that reads pools, claims and nodes from c.
func New(c client.Reader, r Rules, now func() time.Time) *Breaker {
	return &Breaker{
		client: c, soaks: soaks{c, r}, threshold: r.Threshold, now: now,
		started: map[key]time.Time{}, recent: map[string][]time.Time{},
	}
}

// Limit returns how many replacements in the pool, nodes that it loses and gets, may start for the reason now; limited is false if any
// number may. It costs one pass over the claims of the pool.
func (b *Breaker) Limit(ctx context.Context, pool string, reason karpv1.DisruptionReason) (out pass.StartLimit, limited bool) {
	out = pass.StartLimit{NodePool: pool, Reason: reason}
	q, book, err := b.request(ctx, pool, reason)
	switch {
	case err != nil:
		out.Why = fmt.Sprintf("cannot read whether nodes of pool %q become ready: %v", pool, err)
		return out, true
	case q == nil:
		return out, false
	}
	if book.LimitedByWave(q.Request) {
		out.Starts, out.Why = book.Wave(q.Verdicts, q.Batch.Unseen)
		out.Zones = book.WaveZones(q.Verdicts)
		return out, true
	}
	out.Starts, out.Why, limited = b.trial(q, book)
	return out, limited
}

// trial counts how many replacements may start until one is refused.
func (b *Breaker) trial(q *request, book *breaker.History) (starts int, why string, limited bool) {
	// A first batch is of threshold nodes at most, and a probe is one node: more starts than that change nothing any more.
	if book.Refusal(q.after(b.threshold+1)) == "" {
		return 0, "", false
	}
	for why == "" {
		if why = book.Refusal(q.after(starts)); why == "" {
			starts++
		}
	}
	return starts, why, true
}

// request is what a breaker.Request needs besides replacements that start now.
type request struct{ breaker.Request }

// after is the request once so many replacements have started.
func (q *request) after(starts int) breaker.Request {
	out := q.Request
	now := slices.Repeat([]time.Time{q.Now}, starts)
	out.Batch.Unseen += starts
	out.Soaking, out.InFlight = slices.Concat(q.Soaking, now), slices.Concat(q.InFlight, now)
	return out
}

// request reads what decides whether nodes may be replaced; nil if the pool does not exist.
func (b *Breaker) request(ctx context.Context, pool string, reason karpv1.DisruptionReason) (*request, *breaker.History, error) {
	p, class, err := read(ctx, b.client, pool)
	if err != nil || p == nil {
		return nil, nil, err
	}
	claims, err := claimsOf(ctx, b.client, pool)
	if err != nil {
		return nil, nil, err
	}
	book, now := breaker.Read(p), b.now()
	policy, view, err := b.judge(ctx, members{p, class, claims, &book})
	if err != nil {
		return nil, nil, err
	}
	q := &request{breaker.Request{
		Pool: pool, Class: p.Spec.Template.Spec.NodeClassRef.Name, Reason: reason, Verdicts: view.Verdicts,
		Batch: breaker.Batch{
			Rollout: view.Rollout, Size: b.threshold, Unseen: b.unseen(pool, claims), Canary: policy.Canary(),
		},
		Soaking: b.soaking(view, pool), Now: now,
	}}
	if len(book.Paused()) > 0 {
		q.InFlight = b.inFlight(claims, view, key{pool, reason})
	}
	return q, &book, nil
}

// judge judges the nodes of a pool, and has the book hold the roll-out as it is now.
func (b *Breaker) judge(ctx context.Context, m members) (karpv1.Rollout, breaker.Fleet, error) {
	policy, _ := b.soaks.policy(ctx, m) // Reconciler reports the error, and the result is the safer reading
	view, err := b.soaks.read(ctx, m, policy, b.now())
	if err != nil {
		return policy, breaker.Fleet{}, err
	}
	m.book.FirstFault = policy.Canary()
	m.book.UpdateRollout(view, policy, b.now())
	return policy, view, nil
}

// Halted reports whether a replacement for the reason that started at a time must be canceled, and why: the reason has
// been paused since. While a pool cannot be read, nothing is canceled.
func (b *Breaker) Halted(ctx context.Context, pool string, reason karpv1.DisruptionReason, started time.Time) (why string, halted bool) {
	p := &karpv1.NodePool{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
		return "", false
	}
	book := breaker.Read(p)
	if book.Blocks(reason, started) {
		return cmp.Or(book.PauseMessage(reason), book.SoakMessage(pool, p.Spec.Template.Spec.NodeClassRef.Name)), true
	}
	return "", false
}

// Started records the start of a replacement: while the reason is paused, one is tried at a time, and the cache does
// not show a new claim at once.
func (b *Breaker) Started(pool string, reason karpv1.DisruptionReason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.started[key{pool, reason}] = now
	b.recent[pool] = append(slices.DeleteFunc(b.recent[pool], func(at time.Time) bool { return now.Sub(at) >= showsWithin }), now)
}

// KeepsExpired returns why an expired claim must stay for now; empty if it may go. It stays while new nodes of its pool fail soon after
// they have become ready, unless it has their image. When a probe is due, one claim may go, and querying makes it the probe: until its
// replacement shows, the others stay.
func (b *Breaker) KeepsExpired(ctx context.Context, claim *karpv1.NodeClaim) (why string, err error) {
	name := claim.Labels[karpv1.LabelNodePool]
	pool, class, err := read(ctx, b.client, name)
	if err != nil || pool == nil {
		return "", err
	}
	book := breaker.Read(pool)
	image, fail := book.NewNodesFail()
	if !fail || image == claim.Status.ImageID {
		return "", nil
	}
	claims, err := claimsOf(ctx, b.client, name)
	if err != nil {
		return "", err
	}
	now := b.now()
	_, view, err := b.judge(ctx, members{pool, class, claims, &book})
	if err != nil {
		return "", err
	}
	if book.SoakState(reasonExpired, b.soaking(view, name), now) == breaker.HalfOpen {
		b.Started(name, reasonExpired)
		return "", nil
	}
	return book.SoakMessage(name, class.Name), nil
}

// reasonExpired is the reason for which expired claims go.
const reasonExpired karpv1.DisruptionReason = "Expired"

// inFlight returns the start times of replacements for the reason that have no outcome yet.
func (b *Breaker) inFlight(claims []*karpv1.NodeClaim, view breaker.Fleet, k key) []time.Time {
	now := b.now()
	var out []time.Time
	for _, c := range claims {
		if breaker.Reason(c) != k.reason || c.DeletionTimestamp != nil {
			continue
		}
		if _, decided, next := b.soaks.rules.Windows.OutcomeOf(c, view.Health[c.UID], now); !decided && !next.IsZero() {
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

// soaking returns the start times of nodes of a pool, whatever for, that have not shown yet whether they stay ready.
func (b *Breaker) soaking(view breaker.Fleet, pool string) []time.Time {
	now := b.now()
	var out []time.Time
	for _, v := range view.Verdicts {
		if v.Stage == breaker.Soaking {
			out = append(out, v.Created.Time)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, at := range b.started {
		if k.pool == pool && now.Sub(at) < showsWithin {
			out = append(out, at)
		}
	}
	return out
}

// unseen returns how many of the replacements that were started in a pool lately the claims do not show.
func (b *Breaker) unseen(pool string, claims []*karpv1.NodeClaim) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	var starts []time.Time
	for _, at := range b.recent[pool] {
		if now.Sub(at) < showsWithin {
			starts = append(starts, at)
		}
	}
	if len(starts) == 0 {
		return 0
	}
	since, seen := slices.MinFunc(starts, time.Time.Compare).Truncate(time.Second), 0
	for _, c := range claims {
		if breaker.Reason(c) != "" && !c.CreationTimestamp.Time.Before(since) {
			seen++
		}
	}
	return max(len(starts)-seen, 0)
}

// read returns a pool and its node class: an empty class if there is none, and no pool if there is none that is ours.
func read(ctx context.Context, r client.Reader, name string) (*karpv1.NodePool, *awsv1.EC2NodeClass, error) {
	pool, class := &karpv1.NodePool{}, &awsv1.EC2NodeClass{}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	err := r.Get(ctx, client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class)
	return pool, class, client.IgnoreNotFound(err)
}

// claimsOf returns the claims of a pool; they are shared with the cache and must not be changed.
func claimsOf(ctx context.Context, r client.Reader, pool string) ([]*karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := r.List(ctx, &list, client.MatchingLabels{karpv1.LabelNodePool: pool}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := make([]*karpv1.NodeClaim, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}
