// Package ratelimit delays calls of EC2 before EC2 throttles them.
//
// EC2 gives each account a token bucket per API and region. A call that finds the bucket empty is rejected, and still
// counts against all callers of the account: the retries of a thousand rejected calls block each other and the next
// launch. So each API has a token bucket here, too, with the size that EC2 documents for an account with default
// limits.
//
// The true limit differs: it may be raised, and other programs share it. The rate adapts by additive increase and
// multiplicative decrease, as TCP congestion control does. A rejection empties the bucket and halves the rate;
// successes raise it: soon back to the documented rate, and slowly above it while calls wait.
package ratelimit

import (
	"context"
	"strings"
	"sync"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// limit is the size of a token bucket and its refill rate in calls per second.
type limit struct{ burst, rate float64 }

// documentedLimits are the limits of EC2's actions by category in the EC2 Developer Guide (Request throttling for the
// Amazon EC2 API). The guide has lower limits for some actions and for listings without filters: rejections reveal
// these.
var documentedLimits = []struct {
	prefixes []string
	limit
}{
	{[]string{"RunInstances", "StartInstances"}, limit{5, 2}},
	{[]string{"TerminateInstances"}, limit{100, 5}},
	{[]string{"CreateTags", "DeleteTags"}, limit{100, 10}},
	{[]string{"Describe", "Get", "List", "Search"}, limit{100, 20}},
}

// mutatingLimit is the limit of all other actions.
var mutatingLimit = limit{50, 5}

func limitOf(action string) limit {
	for _, d := range documentedLimits {
		for _, prefix := range d.prefixes {
			if strings.HasPrefix(action, prefix) {
				return d.limit
			}
		}
	}
	return mutatingLimit
}

const (
	// minRateShare is the share of the documented rate below which the rate never drops: if EC2 rejects calls at
	// random, or others use up the limit, a lower rate does not help.
	minRateShare = 0.1
	// halveInterval sets how long rejections count as one: many calls are in flight when a bucket runs dry.
	halveInterval = time.Second
	// recoverShare is the share of the documented rate that each success adds while the rate is below the documented
	// one. Forty successes make up for the deepest drop.
	recoverShare = 1.0 / 40
	// maxRateFactor bounds the rate to this multiple of the documented one, for accounts with raised limits.
	maxRateFactor = 20
	// probeIncrement states what a success after waiting adds above the documented rate, in calls per second: the rate then
	// grows by half in half a minute.
	probeIncrement = 1.0 / 60
)

// bucket is the token bucket of one API.
type bucket struct {
	limit
	documented float64 // rate
	// turn is held by the one caller that waits for a token. The others wait for their turn, so that a changed rate
	// applies to all of them.
	turn chan struct{}

	mu         sync.Mutex
	tokens     float64
	refilledAt time.Time
	// halvedAt is the time when the rate was last halved.
	halvedAt time.Time
}

func newBucket(l limit) *bucket {
	return &bucket{limit: l, documented: l.rate, turn: make(chan struct{}, 1), tokens: l.burst, refilledAt: time.Now()}
}

// maxWait limits how long a caller waits before it reads the rate again.
const maxWait = time.Second

// take takes a token, and reports whether it had to wait for it. It fails when ctx is done first.
func (b *bucket) take(ctx context.Context) (waited bool, err error) {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-b.turn }()
	for {
		wait := b.tryTake(time.Now())
		if wait == 0 {
			return waited, nil
		}
		waited = true
		timer := time.NewTimer(min(wait, maxWait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return waited, ctx.Err()
		case <-timer.C:
		}
	}
}

// tryTake takes a token if there is one, or returns the time until there is.
func (b *bucket) tryTake(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	// A moment longer, so that rounding does not leave a fraction of a token to wait for.
	return time.Duration((1-b.tokens)/b.rate*float64(time.Second)) + time.Microsecond
}

func (b *bucket) refill(now time.Time) {
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.refilledAt).Seconds())
	b.refilledAt = now
}

// observe adapts the rate to the result of a call that was sent at sent.
func (b *bucket) observe(sent, now time.Time, waited, refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	switch {
	case refused && sent.Sub(b.halvedAt) >= halveInterval: // calls sent before do not reflect the new rate
		b.halvedAt = now
		b.rate = max(b.documented*minRateShare, b.rate/2)
		b.tokens = 0
	case refused:
		b.tokens = 0
	case b.rate < b.documented:
		b.rate = min(b.documented, b.rate+b.documented*recoverShare)
	case waited:
		b.rate = min(b.documented*maxRateFactor, b.rate+probeIncrement)
	}
}

// Limiter has the token buckets of one account and region. It is safe for concurrent use.
type Limiter struct {
	mu      sync.Mutex
	buckets map[string]*bucket // by action
}

// New returns a Limiter with full buckets.
func New() *Limiter { return &Limiter{buckets: map[string]*bucket{}} }

func (l *Limiter) bucketOf(action string) *bucket {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[action]
	if b == nil {
		b = newBucket(limitOf(action))
		l.buckets[action] = b
	}
	return b
}

// Add inserts the limiter before each attempt at a call of EC2; calls of other services pass.
func (l *Limiter) Add(stack *middleware.Stack) error {
	if _, retries := stack.Finalize.Get("Retry"); !retries {
		return nil // presigned, nothing is sent
	}
	return stack.Finalize.Insert(attemptMiddleware{l}, "Retry", middleware.After)
}

// attemptMiddleware is a step of each attempt at a call.
type attemptMiddleware struct{ *Limiter }

// ID implements middleware.FinalizeMiddleware.
func (attemptMiddleware) ID() string { return "dovetail.RateLimit" }

// HandleFinalize implements middleware.FinalizeMiddleware.
func (a attemptMiddleware) HandleFinalize(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
	out middleware.FinalizeOutput, metadata middleware.Metadata, err error,
) {
	if awsmiddleware.GetServiceID(ctx) != ec2.ServiceID {
		return next.HandleFinalize(ctx, in)
	}
	b := a.bucketOf(middleware.GetOperationName(ctx))
	waited, err := b.take(ctx)
	if err != nil {
		return out, metadata, err
	}
	sent := time.Now()
	out, metadata, err = next.HandleFinalize(ctx, in)
	b.observe(sent, time.Now(), waited, awserrors.Is(err, awserrors.RateLimited))
	return out, metadata, err
}
