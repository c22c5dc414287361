// Package ratelimit holds calls of EC2 back before EC2 refuses them.
//
// EC2 gives each account a token bucket per API and region. A call that finds it empty is refused, and counts against whoever else
// calls in the account: the retries of a thousand refused calls keep each other, and the next launch, from getting through. So each
// API has a bucket here, too, of the size that EC2 documents for an account of which nobody has raised or shares the limits.
//
// The true limit is another: it may be raised, and other programs draw on it. The rate follows it. A refusal empties the bucket and
// halves the rate, and successes raise it: soon back to what is documented, and slowly above that while calls wait.
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

// limit is a bucket: how many calls it holds, and how many flow in a second.
type limit struct{ burst, rate float64 }

// documented are limits of EC2's actions after the categories of the EC2 Developer Guide (Request throttling for the Amazon EC2
// API). The guide has lower ones for some actions and for listings without filters: these are found by refusals.
var documentedLimits = []struct {
	prefixes []string
	limit
}{
	{[]string{"RunInstances", "StartInstances"}, limit{5, 2}},
	{[]string{"TerminateInstances"}, limit{100, 5}},
	{[]string{"CreateTags", "DeleteTags"}, limit{100, 10}},
	{[]string{"Describe", "Get", "List", "Search"}, limit{100, 20}},
}

// mutating is the limit of all other actions.
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
	// slowest is the share of the documented rate below which no refusal brings an API: where EC2 refuses calls at random, or
	// others use all that it lets through, going slower does not help.
	minRateShare = 0.1
	// halveInterval is how long refusals count as one: many calls are under way when a bucket runs dry.
	halveInterval = time.Second
	// regain is the share of the documented rate that a success adds while the rate is below that.
	recoverShare = 1.0 / 40
	// fastest is how many times the documented rate an account may turn out to have.
	maxRateFactor = 20
	// raise is what a success after waiting adds above it, in calls a second: the rate then grows by half in half a minute.
	probeIncrement = 1.0 / 60
)

// bucket is that of one API.
type bucket struct {
	limit
	documented float64 // rate
	// turn is held by the one caller that waits for a token. The others wait for their turn, so that a rate that has changed
	// holds for all of them.
	turn chan struct{}

	mu         sync.Mutex
	tokens     float64
	refilledAt time.Time
	// refused is when the rate was last halved.
	halvedAt time.Time
}

func newBucket(l limit) *bucket {
	return &bucket{limit: l, documented: l.rate, turn: make(chan struct{}, 1), tokens: l.burst, refilledAt: time.Now()}
}

// longest is how long a caller waits at a time before it looks at the rate again.
const maxWait = time.Second

// take draws a token, and reports whether it had to wait for it. It fails when ctx ends before.
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

// try draws a token if there is one, or returns how long it takes until there is.
func (b *bucket) tryTake(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	// A moment more than it takes, so that rounding does not leave a part of a token to wait for.
	return time.Duration((1-b.tokens)/b.rate*float64(time.Second)) + time.Microsecond
}

func (b *bucket) refill(now time.Time) {
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.refilledAt).Seconds())
	b.refilledAt = now
}

// answered learns from what became of a call that was sent at sent.
func (b *bucket) observe(sent, now time.Time, waited, refused bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	switch {
	case refused && sent.Sub(b.halvedAt) >= halveInterval: // calls sent before say nothing about the new rate
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

// Limiter has the buckets of one account and region. It is safe for concurrent use.
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

// Add puts the limiter in front of each attempt at a call of EC2; calls of other services pass.
func (l *Limiter) Add(stack *middleware.Stack) error {
	if _, retries := stack.Finalize.Get("Retry"); !retries {
		return nil // presigned, nothing is sent
	}
	return stack.Finalize.Insert(attemptMiddleware{l}, "Retry", middleware.After)
}

// attempt is a step of each attempt at a call.
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
