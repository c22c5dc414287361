package clock_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
)

// TestFakeCallsInOrder: calls happen in the order of their times, each at its own, those they make in turn included.
func TestFakeCallsInOrder(t *testing.T) {
	start := time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC)
	c := clock.NewFake(start)
	var got []string
	note := func(name string) { got = append(got, name+" "+c.Now().Sub(start).String()) }
	c.AfterFunc(3*time.Second, func() { note("late") })
	c.AfterFunc(time.Second, func() {
		note("early")
		c.AfterFunc(time.Second, func() { note("chained") })
	})
	c.AfterFunc(3*time.Second, func() { note("later") })
	c.AfterFunc(time.Minute, func() { note("never") })
	cancel := c.AfterFunc(2*time.Second, func() { note("cancelled") })
	if !cancel() || cancel() {
		t.Error("cancel says whether the call was still to come")
	}
	c.Advance(10 * time.Second)
	if want := []string{"early 1s", "chained 2s", "late 3s", "later 3s"}; !slices.Equal(got, want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	if now := c.Now().Sub(start); now != 10*time.Second {
		t.Errorf("clock shows %s", now)
	}
	c.Set(start)
	if now := c.Now().Sub(start); now != 10*time.Second {
		t.Errorf("clock went back to %s", now)
	}
}

func TestFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		c := clock.NewFast(start, 10)
		var rang time.Time
		c.AfterFunc(time.Minute, func() { rang = time.Now() })
		cancelled := c.AfterFunc(time.Minute, func() { t.Error("a call that was cancelled was made") })
		began := time.Now()
		time.Sleep(3 * time.Second)
		if !cancelled() {
			t.Error("the call was not to come any more after half a minute")
		}
		if got := c.Now().Sub(start); got != 30*time.Second {
			t.Errorf("after 3 s the clock has moved %v", got)
		}
		time.Sleep(time.Minute)
		if got := rang.Sub(began); got != 6*time.Second {
			t.Errorf("a call after a minute came after %v", got)
		}
	})
}
