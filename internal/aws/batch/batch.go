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

// Window states how long requests are collected.
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
	// AtOnce counts how many calls are in flight at most; zero means 100, well above what EC2's rate limits let through. A window that is over
	// stays open until its call can be made, so that the slower calls are, the more requests they serve.
	AtOnce int
	// Batched records each call: its number of requests, and how long the first of them waited. It may be nil.
	Batched func(name string, size int, gathered time.Duration)
}

// defaultAtOnce sets how many calls are in flight at most, by default.
const defaultAtOnce = 100

// Batcher batches requests by key. It is safe for concurrent use.
type Batcher[Key comparable, In, Out any] struct {
	cfg   Config[Key, In, Out]
	slots chan struct{}

	mu   sync.Mutex
	open map[Key]*bucket[In, Out]
}

// bucket holds the requests of the next call for one key.
type bucket[In, Out any] struct {
	items    []In
	results  []chan Result[Out]
	openedAt time.Time
	// over is true once the window is over. The bucket takes more requests until its call can be made, or it is full.
	over      bool
	idleTimer *time.Timer
	maxTimer  *time.Timer
}

// New returns a Batcher.
func New[Key comparable, In, Out any](cfg Config[Key, In, Out]) *Batcher[Key, In, Out] {
	if cfg.AtOnce == 0 {
		cfg.AtOnce = defaultAtOnce
	}
	return &Batcher[Key, In, Out]{cfg: cfg, slots: make(chan struct{}, cfg.AtOnce), open: map[Key]*bucket[In, Out]{}}
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
	switch {
	case len(k.items) >= b.cfg.Window.Items:
		delete(b.open, key) // closed for further requests
		go b.serve(ctx, key, k)
	case !k.over:
		k.idleTimer.Reset(b.cfg.Window.Idle)
	}
	return answer
}

// serve stops the window of a bucket, once, and makes its call.
func (b *Batcher[Key, In, Out]) serve(ctx context.Context, key Key, k *bucket[In, Out]) {
	if !b.end(k) {
		return
	}
	b.slots <- struct{}{}
	defer func() { <-b.slots }()
	b.close(key, k)
	gathered := time.Since(k.openedAt)
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

// end reports whether the window of a bucket was not over before.
func (b *Batcher[Key, In, Out]) end(k *bucket[In, Out]) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k.over {
		return false
	}
	k.over = true
	k.idleTimer.Stop()
	k.maxTimer.Stop()
	return true
}

// close closes a bucket for further requests.
func (b *Batcher[Key, In, Out]) close(key Key, k *bucket[In, Out]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[key] == k {
		delete(b.open, key)
	}
}
