// Package batch merges requests that arrive at about the same time into one call.
//
// A caller waits for its own result only. When its context is canceled it returns at once, while the call continues for
// the others.
package batch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Window is how long requests are collected.
type Window struct {
	// Idle closes the window when no request has arrived for that long; Max closes it at that time after the first
	// request in any case.
	Idle, Max time.Duration
	// Items closes the window at once when it has that many requests.
	Items int
}

// Result is the result of one request.
type Result[Out any] struct {
	Value Out
	Err   error
}

// Config configures a Batcher.
type Config[Key comparable, In, Out any] struct {
	// Name is the batcher's label in metrics.
	Name   string
	Window Window
	// Call serves the requests of one key, and returns a result for each, in their order. Its context has only the
	// deadline of Timeout, and does not end when a caller's context does.
	Call    func(ctx context.Context, key Key, items []In) []Result[Out]
	Timeout time.Duration
	// Batched records each call: its number of requests, and how long the first of them waited. It may be nil.
	Batched func(name string, size int, gathered time.Duration)
}

// maxConcurrentCalls bounds the calls of one Batcher in flight, well above what EC2's rate limits let through.
const maxConcurrentCalls = 100

// Batcher batches requests by key. It is safe for concurrent use.
type Batcher[Key comparable, In, Out any] struct {
	cfg   Config[Key, In, Out]
	slots chan struct{}

	mu   sync.Mutex
	open map[Key]*bucket[In, Out]
}

// bucket holds the requests of the next call for one key.
type bucket[In, Out any] struct {
	items     []In
	results   []chan Result[Out]
	openedAt  time.Time
	closed    bool
	idleTimer *time.Timer
	maxTimer  *time.Timer
}

// New returns a Batcher.
func New[Key comparable, In, Out any](cfg Config[Key, In, Out]) *Batcher[Key, In, Out] {
	return &Batcher[Key, In, Out]{cfg: cfg, slots: make(chan struct{}, maxConcurrentCalls), open: map[Key]*bucket[In, Out]{}}
}

// Do adds a request to the call of its key and returns its result. When ctx is canceled it returns the error of ctx,
// whatever the call does.
func (b *Batcher[Key, In, Out]) Do(ctx context.Context, key Key, in In) (Out, error) {
	var none Out
	if err := ctx.Err(); err != nil {
		return none, err
	}
	answer := b.add(context.WithoutCancel(ctx), key, in)
	select {
	case r := <-answer:
		return r.Value, r.Err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// add puts a request into the bucket of its key, and opens a bucket if there is none.
func (b *Batcher[Key, In, Out]) add(ctx context.Context, key Key, in In) <-chan Result[Out] {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.open[key]
	if k == nil {
		k = &bucket[In, Out]{openedAt: time.Now()}
		b.open[key] = k
		serve := func() { b.serve(ctx, key, k) }
		k.idleTimer, k.maxTimer = time.AfterFunc(b.cfg.Window.Idle, serve), time.AfterFunc(b.cfg.Window.Max, serve)
	}
	answer := make(chan Result[Out], 1)
	k.items, k.results = append(k.items, in), append(k.results, answer)
	if len(k.items) >= b.cfg.Window.Items {
		delete(b.open, key) // closed for further requests
		go b.serve(ctx, key, k)
	} else {
		k.idleTimer.Reset(b.cfg.Window.Idle)
	}
	return answer
}

// serve closes a bucket, once, and makes its call.
func (b *Batcher[Key, In, Out]) serve(ctx context.Context, key Key, k *bucket[In, Out]) {
	if !b.close(key, k) {
		return
	}
	gathered := time.Since(k.openedAt)
	b.slots <- struct{}{}
	defer func() { <-b.slots }()
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	results := b.cfg.Call(ctx, key, k.items)
	if b.cfg.Batched != nil {
		b.cfg.Batched(b.cfg.Name, len(k.items), gathered)
	}
	for i, answer := range k.results {
		if i < len(results) {
			answer <- results[i]
			continue
		}
		answer <- Result[Out]{Err: fmt.Errorf("%s: there are %d results for %d requests", b.cfg.Name, len(results), len(k.items))}
	}
}

func (b *Batcher[Key, In, Out]) close(key Key, k *bucket[In, Out]) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k.closed {
		return false
	}
	k.closed = true
	k.idleTimer.Stop()
	k.maxTimer.Stop()
	if b.open[key] == k {
		delete(b.open, key)
	}
	return true
}
