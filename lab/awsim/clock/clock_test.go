package clock_test

import (
	"slices"
	"testing"
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
