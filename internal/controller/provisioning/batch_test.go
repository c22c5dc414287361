package provisioning

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestBatchWindow(t *testing.T) {
	type trigger struct {
		at  time.Duration
		uid types.UID
	}
	tests := []struct {
		name     string
		triggers []trigger
		closes   time.Duration
	}{
		{"one trigger, then silence: closes after the idle time", []trigger{{0, "a"}}, 5 * time.Second},
		{"the same pod again: the window is not kept open", []trigger{{0, "a"}, {3 * time.Second, "a"}}, 5 * time.Second},
		{"another pod: the idle time starts anew", []trigger{{0, "a"}, {3 * time.Second, "b"}}, 8 * time.Second},
		{
			"pods without end: closes at the longest time",
			[]trigger{{0, "a"}, {3 * time.Second, "b"}, {6 * time.Second, "c"}, {9 * time.Second, "d"}, {12 * time.Second, "e"}},
			10 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBatch(5*time.Second, 10*time.Second)
				start := time.Now()
				var triggers sync.WaitGroup
				defer triggers.Wait()
				for _, tr := range tt.triggers {
					triggers.Go(func() {
						time.Sleep(tr.at)
						b.Trigger(tr.uid)
					})
				}
				if !b.Wait(t.Context()) {
					t.Fatal("Wait was not triggered")
				}
				if got := time.Since(start); got != tt.closes {
					t.Errorf("window closed after %v, want %v", got, tt.closes)
				}
			})
		})
	}
}

// Pods that arrive faster than they are planned do not wait for each other. Pods that trigger again do not count.
func TestFullBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(time.Second, 10*time.Second)
		b.Full = 3
		window := func() time.Duration {
			start := time.Now()
			if !b.Wait(t.Context()) {
				t.Fatal("Wait was not triggered")
			}
			return time.Since(start)
		}
		for _, uid := range []types.UID{"a", "b", "a", "c"} {
			b.TriggerFirst(uid)
		}
		if got := window(); got != 0 {
			t.Errorf("three new pods: closed after %v, want at once", got)
		}
		for _, uid := range []types.UID{"a", "b", "c", "d"} {
			b.Trigger(uid)
		}
		b.TriggerFirst("e")
		b.TriggerFirst("f")
		if got := window(); got != time.Second {
			t.Errorf("two new pods and four that still wait: closed after %v, want the idle time", got)
		}
		b.TriggerFirst("g")
		if got := window(); got != time.Second {
			t.Errorf("one new pod after a window of two: closed after %v, want the idle time", got)
		}
	})
}

func TestBatchEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if NewBatch(time.Second, time.Second).Wait(ctx) {
			t.Error("Wait reported a batch that nobody triggered")
		}
	})
}

func TestTriggerDuringAPassIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(time.Second, 10*time.Second)
		b.Trigger("a")
		if !b.Wait(t.Context()) {
			t.Fatal("first batch")
		}
		b.Trigger("a")
		if !b.Wait(t.Context()) {
			t.Fatal("a pod that is still pending after a pass must open the next window")
		}
	})
}
