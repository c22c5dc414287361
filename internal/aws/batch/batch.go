// Package batch gathers requests that come at about the same time, so that one call serves them all.
//
// A caller waits for its own result only. One that gives up leaves: the call goes on for the others, and for whatever
// the call has to account for.
package batch

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Window is how long requests are gathered.
type Window struct {
	// Idle without a newcomer closes the window, Max after the first request closes it in any case.
	Idle, Max time.Duration
	// Items closes it at once.
	Items int
}

// Result is what one request comes to.
type Result[Out any] struct {
	Value Out
	Err   error
}

// Config is what a Batcher works with.
type Config[Key comparable, In, Out any] struct {
	// Name is that of the batcher in metrics.
	Name   string
	Window Window
	// Call serves requests of one key, and returns a result for each, in their order. Its context carries no deadline but
	// Timeout, and does not end with any caller's.
	Call    func(ctx context.Context, key Key, items []In) []Result[Out]
	Timeout time.Duration
	// Batched is told of each call: how many requests it served, and how long the first of them was gathered for. Nil
	// tells nobody.
	Batched func(name string, size int, gathered time.Duration)
}

// maxConcurrentCalls is how many calls one Batcher makes at a time.
const maxConcurrentCalls = 100

// Batcher gathers requests by key. It is safe for concurrent use.
type Batcher[Key comparable, In, Out any] struct {
	cfg   Config[Key, In, Out]
	slots chan struct{}

	mu   sync.Mutex
	open map[Key]*bucket[In, Out]
}

// bucket is what has been gathered for one call.
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

// Do has in served by a call together with others of the same key. When ctx ends it returns the error of ctx, whatever
// becomes of the call.
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

// join puts a request into the bucket of its key, and opens one if there is none.
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
		delete(b.open, key) // nobody joins it any more
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
