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

func TestChangesOfClaimsEndThePause(t *testing.T) {
	set := func(kind string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) { condition.SetTrue(c, kind, time.Unix(0, 0)) }
	}
	doomed := func(c *karpv1.NodeClaim) { c.Annotations = map[string]string{karpv1.AnnotationDisruptionCommand: "{}"} }
	same := func(*karpv1.NodeClaim) {}
	const moment = 100 * time.Millisecond
	for _, tt := range []struct {
		name          string
		before, after func(*karpv1.NodeClaim)
		pause, took   time.Duration
		want          time.Duration
	}{
		{"has become consolidatable", same, set(karpv1.ConditionConsolidatable), idle, 0, moment + gather},
		{"was consolidatable before", set(karpv1.ConditionConsolidatable), set(karpv1.ConditionConsolidatable), idle, 0, idle},
		{"is consolidatable no more", set(karpv1.ConditionConsolidatable), same, idle, 0, idle},
		{"is out of date", same, set(karpv1.ConditionDrifted), idle, 0, moment + gather},
		{"is ready for pods", same, set(karpv1.ConditionInitialized), idle, 0, moment + gather},
		{"is registered", same, set(karpv1.ConditionRegistered), idle, 0, idle},
		{"is to be ended", same, doomed, idle, 0, idle},
		{"is to be ended no more", doomed, same, idle, 0, moment + gather},
		{"after a long pass", same, set(karpv1.ConditionDrifted), idle, 3 * time.Second, moment + 3*time.Second},
		{"a proposal is due before", same, set(karpv1.ConditionDrifted), moment * 2, 0, moment * 2},
		{"after a pass that acted", same, set(karpv1.ConditionDrifted), 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after := &karpv1.NodeClaim{}, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
				tt.before(before)
				tt.after(after)
				l := &Loop{bell: make(chan struct{}, 1)}
				began := time.Now()
				time.AfterFunc(moment, func() { l.bellRinger().OnUpdate(before, after) })
				if !l.await(t.Context(), tt.pause, tt.took) {
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
		l := &Loop{bell: make(chan struct{}, 1)}
		for i := range 50 {
			time.AfterFunc(time.Duration(i)*10*time.Millisecond, func() { l.bellRinger().OnDelete(&karpv1.NodeClaim{}) })
		}
		began := time.Now()
		l.await(t.Context(), idle, 0)
		if got := time.Since(began); got != gather {
			t.Errorf("the first pass begins after %v, want %v", got, gather)
		}
		l.await(t.Context(), idle, 0) // what rang meanwhile may have been seen by that pass, or not
		if got := time.Since(began); got != 2*gather {
			t.Errorf("the second pass begins after %v, want %v", got, 2*gather)
		}
		l.await(t.Context(), idle, 0)
		if got := time.Since(began); got != 2*gather+idle {
			t.Errorf("the third pass begins after %v, want %v", got, 2*gather+idle)
		}
	})
}

func TestRestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ring := range []bool{false, true} {
			l := &Loop{bell: make(chan struct{}, 1)}
			if ring {
				l.ring()
			}
			ctx, cancel := context.WithTimeout(t.Context(), gather/2)
			if l.await(ctx, idle, 0) {
				t.Errorf("rung %v: goes on after its context", ring)
			}
			cancel()
		}
	})
}
