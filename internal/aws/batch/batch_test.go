package batch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counter echoes requests, and records the calls.
type counter struct {
	mu    sync.Mutex
	calls []string
}

func (c *counter) call(_ context.Context, key string, items []string) []Result[string] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("%s:%d", key, len(items)))
	out := make([]Result[string], len(items))
	for i, in := range items {
		out[i] = Result[string]{Value: in}
		if strings.HasPrefix(in, "bad") {
			out[i] = Result[string]{Err: errors.New(in)}
		}
	}
	return out
}

func (c *counter) said() string { return strings.Join(c.calls, " ") }

func newBatcher(c *counter) *Batcher[string, string, string] {
	return New(Config[string, string, string]{
		Name: "test", Window: Window{Idle: 100 * time.Millisecond, Max: time.Second, Items: 5}, Timeout: time.Minute, Call: c.call,
	})
}

func TestWindow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration // between requests
		n     int
		want  string
	}{
		{"at a time", 0, 3, "k:3"},
		{"too far apart", 101 * time.Millisecond, 2, "k:1 k:1"},
		{"full at once", 0, 7, "k:5 k:2"},
		{"never idle, flushed after the longest wait", 99 * time.Millisecond, 12, "k:5 k:5 k:2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &counter{}
				b := newBatcher(c)
				var done sync.WaitGroup
				for n := range tt.n {
					done.Go(func() {
						if got, err := b.Do(t.Context(), "k", fmt.Sprint(n)); err != nil || got != fmt.Sprint(n) {
							t.Errorf("request %d: %q, %v", n, got, err)
						}
					})
					time.Sleep(tt.every)
				}
				done.Wait()
				if c.said() != tt.want {
					t.Errorf("calls %s, want %s", c.said(), tt.want)
				}
			})
		})
	}
}

func TestNeverIdleAndNeverFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		b := newBatcher(c)
		b.cfg.Window.Items = 1000
		var done sync.WaitGroup
		began := time.Now()
		var first time.Duration
		for n := range 15 {
			done.Go(func() {
				_, _ = b.Do(t.Context(), "k", "")
				if n == 0 {
					first = time.Since(began)
				}
			})
			time.Sleep(90 * time.Millisecond)
		}
		done.Wait()
		if first != time.Second || c.said() != "k:12 k:3" {
			t.Errorf("the first was served after %v; calls %s", first, c.said())
		}
	})
}

// While all calls are busy, requests with a window that is over wait together with those that come after them.
func TestRequestsThatWaitForACallShareIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		b := New(Config[string, string, string]{
			Name: "test", Window: Window{Idle: 100 * time.Millisecond, Max: time.Second, Items: 5}, Timeout: time.Minute, AtOnce: 1,
			Call: func(ctx context.Context, key string, items []string) []Result[string] {
				time.Sleep(10 * time.Second)
				return c.call(ctx, key, items)
			},
		})
		var done sync.WaitGroup
		began := time.Now()
		request := func(key string, want time.Duration) {
			done.Go(func() {
				if _, err := b.Do(t.Context(), key, ""); err != nil || time.Since(began) != want {
					t.Errorf("%s: %v after %v, want %v", key, err, time.Since(began), want)
				}
			})
			synctest.Wait()
		}
		const first = 10*time.Second + 100*time.Millisecond
		request("a", first)
		time.Sleep(time.Second)
		for range 3 { // two seconds apart, far more than the window
			request("b", first+10*time.Second)
			time.Sleep(2 * time.Second)
		}
		for n := range 7 { // five fill a call; two are for the next
			request("c", first+time.Duration(2+n/5)*10*time.Second)
		}
		done.Wait()
		if c.said() != "a:1 b:3 c:5 c:2" {
			t.Errorf("calls %s", c.said())
		}
	})
}

func TestKeysDoNotMix(t *testing.T) {
	t.Run("requests of different kinds are separate calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &counter{}
			b := newBatcher(c)
			var done sync.WaitGroup
			for n, key := range []string{"a", "b", "a"} {
				done.Go(func() { _, _ = b.Do(t.Context(), key, fmt.Sprint(n)) })
			}
			done.Wait()
			if len(c.calls) != 2 || !strings.Contains(c.said(), "a:2") || !strings.Contains(c.said(), "b:1") {
				t.Errorf("calls %s", c.said())
			}
		})
	})
}

func TestEachCallerGetsItsOwnResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatcher(&counter{})
		var done sync.WaitGroup
		for _, in := range []string{"good", "bad 1", "bad 2"} {
			done.Go(func() {
				got, err := b.Do(t.Context(), "k", in)
				if (err == nil) != (in == "good") || err != nil && err.Error() != in || err == nil && got != in {
					t.Errorf("%s: %q, %v", in, got, err)
				}
			})
		}
		done.Wait()
	})
}

// A canceled caller, even the first, does not cancel the call of the others.
func TestCanceledCallerDoesNotStopTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		b := newBatcher(c)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if _, err := b.Do(ctx, "k", "first"); !errors.Is(err, context.Canceled) {
				t.Errorf("the one that left: %v", err)
			}
		})
		synctest.Wait()
		done.Go(func() {
			if got, err := b.Do(t.Context(), "k", "second"); err != nil || got != "second" {
				t.Errorf("the one that stayed: %q, %v", got, err)
			}
		})
		synctest.Wait()
		cancel()
		done.Wait()
		if c.said() != "k:2" {
			t.Errorf("calls %s", c.said())
		}
	})
}

func TestTooFewResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config[string, int, int]{
			Name: "test", Window: Window{Idle: time.Millisecond, Max: time.Second, Items: 5}, Timeout: time.Minute,
			Call: func(context.Context, string, []int) []Result[int] { return nil },
		})
		if _, err := b.Do(t.Context(), "k", 1); err == nil || !strings.Contains(err.Error(), "0 results for 1 requests") {
			t.Errorf("got %v", err)
		}
	})
}

func TestBatchSizeAndWaitAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		b := newBatcher(c)
		var said string
		b.cfg.Batched = func(name string, size int, gathered time.Duration) { said = fmt.Sprint(name, size, gathered) }
		if _, err := b.Do(t.Context(), "k", ""); err != nil || said != "test1 100ms" {
			t.Errorf("%q, %v", said, err)
		}
	})
}
