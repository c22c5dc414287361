package disruption

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestClaimChangesWakeTheLoop(t *testing.T) {
	set := func(kind string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) { condition.SetTrue(c, kind, time.Unix(0, 0)) }
	}
	disrupting := func(c *karpv1.NodeClaim) { c.Annotations = map[string]string{karpv1.AnnotationDisruptionCommand: "{}"} }
	same := func(*karpv1.NodeClaim) {}
	const moment = 100 * time.Millisecond
	for _, tt := range []struct {
		name          string
		before, after func(*karpv1.NodeClaim)
		pause, took   time.Duration
		want          time.Duration
	}{
		{"has become consolidatable", same, set(karpv1.ConditionConsolidatable), passInterval, 0, moment + gatherWindow},
		{"was consolidatable before", set(karpv1.ConditionConsolidatable), set(karpv1.ConditionConsolidatable), passInterval, 0, passInterval},
		{"is consolidatable no more", set(karpv1.ConditionConsolidatable), same, passInterval, 0, passInterval},
		{"is out of date", same, set(karpv1.ConditionDrifted), passInterval, 0, moment + gatherWindow},
		{"is ready for pods", same, set(karpv1.ConditionInitialized), passInterval, 0, moment + gatherWindow},
		{"is registered", same, set(karpv1.ConditionRegistered), passInterval, 0, passInterval},
		{"is to be disrupted", same, disrupting, passInterval, 0, passInterval},
		{"is no longer to be disrupted", disrupting, same, passInterval, 0, moment + gatherWindow},
		{"after a long pass", same, set(karpv1.ConditionDrifted), passInterval, 3 * time.Second, moment + 3*time.Second},
		{"a proposal is due before", same, set(karpv1.ConditionDrifted), moment * 2, 0, moment * 2},
		{"after a pass that acted", same, set(karpv1.ConditionDrifted), 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after := &karpv1.NodeClaim{}, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
				tt.before(before)
				tt.after(after)
				l := &Loop{wake: make(chan struct{}, 1)}
				began := time.Now()
				time.AfterFunc(moment, func() { l.eventHandler().OnUpdate(before, after) })
				if !l.waitForNextPass(t.Context(), tt.pause, tt.took) {
					t.Error("ends with its context going on")
				}
				if got := time.Since(began); got != tt.want {
					t.Errorf("the next pass begins after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestManyChangesAreOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Loop{wake: make(chan struct{}, 1)}
		for i := range 50 {
			time.AfterFunc(time.Duration(i)*10*time.Millisecond, func() { l.eventHandler().OnDelete(&karpv1.NodeClaim{}) })
		}
		began := time.Now()
		l.waitForNextPass(t.Context(), passInterval, 0)
		if got := time.Since(began); got != gatherWindow {
			t.Errorf("the first pass begins after %v, want %v", got, gatherWindow)
		}
		l.waitForNextPass(t.Context(), passInterval, 0) // what rang meanwhile may have been seen by that pass, or not
		if got := time.Since(began); got != 2*gatherWindow {
			t.Errorf("the second pass begins after %v, want %v", got, 2*gatherWindow)
		}
		l.waitForNextPass(t.Context(), passInterval, 0)
		if got := time.Since(began); got != 2*gatherWindow+passInterval {
			t.Errorf("the third pass begins after %v, want %v", got, 2*gatherWindow+passInterval)
		}
	})
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ring := range []bool{false, true} {
			l := &Loop{wake: make(chan struct{}, 1)}
			if ring {
				l.signal()
			}
			ctx, cancel := context.WithTimeout(t.Context(), gatherWindow/2)
			if l.waitForNextPass(ctx, passInterval, 0) {
				t.Errorf("rung %v: goes on after its context", ring)
			}
			cancel()
		}
	})
}
