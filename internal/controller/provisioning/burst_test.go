package provisioning

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// arrive has so many new pods arrive.
func arrive(b *Batch, n int) {
	for i := range n {
		b.TriggerFirst(types.UID(fmt.Sprint(i)))
	}
}

// Others wait while a burst arrives and is planned, and not for a few pods.
func TestOthersWaitWhileABurstIsPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBatch(time.Second, 10*time.Second)
		var told []bool
		b.OnBurst(func(begins bool) { told = append(told, begins) })
		waited := func(ctx context.Context) (time.Duration, bool) {
			start := time.Now()
			goesOn := b.AwaitBurstEnd(ctx, 20*time.Second)
			return time.Since(start), goesOn
		}
		expect := func(when string, want time.Duration) {
			t.Helper()
			if got, goesOn := waited(t.Context()); got != want || !goesOn {
				t.Errorf("%s: waited %v (%v), want %v", when, got, goesOn, want)
			}
		}
		arrive(b, burstSize-1)
		expect("a few pods", 0)
		b.TriggerFirst("one more")
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, goesOn := waited(ended); goesOn {
			t.Error("the process ends meanwhile: it goes on")
		}
		b.Wait(t.Context())
		arrive(b, burstSize) // while the first ones are planned
		expect("the first ones are planned", 20*time.Second)
		planning, stop := context.WithCancel(t.Context())
		go b.Wait(planning)
		synctest.Wait()
		expect("a plan takes very long", 20*time.Second)
		go func() {
			time.Sleep(3 * time.Second) // the plan of the second ones
			b.Wait(planning)
		}()
		expect("the second ones are planned", 3*time.Second)
		expect("afterwards", 0)
		stop()
		synctest.Wait()
		if !slices.Equal(told, []bool{true, false}) {
			t.Errorf("told %v: one burst begins and ends", told)
		}
	})
}
