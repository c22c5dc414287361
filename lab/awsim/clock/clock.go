// Package clock is the simulated account's sense of time: what it is now, and being called later.
//
// Production code uses System; tests use a Fake that only Advance moves.
package clock

import (
	"slices"
	"sync"
	"time"
)

// Clock returns the time and schedules callbacks.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, on its own goroutine or on the one that moves the clock, when d has passed.
	// The returned function cancels the call and reports whether it was still to come.
	AfterFunc(d time.Duration, f func()) (cancel func() bool)
}

// System is the wall clock.
type System struct{}

// Now returns the current time.
func (System) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (System) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Fast runs at a multiple of the wall clock's speed.
type Fast struct {
	start, origin time.Time
	speed         float64
}

// NewFast returns a clock that shows start now, and goes speed times as fast as the wall clock from then on. A speed
// that is not positive counts as 1.
func NewFast(start time.Time, speed float64) *Fast {
	if speed <= 0 {
		speed = 1
	}
	return &Fast{start: start, origin: time.Now(), speed: speed}
}

// Now returns the time on this clock.
func (c *Fast) Now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.origin)) * c.speed))
}

// AfterFunc calls f when d has passed on this clock.
func (c *Fast) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(time.Duration(float64(d)/c.speed), f).Stop
}

// Fake stands still until Advance or Set moves it.
type Fake struct {
	mu      sync.Mutex
	now     time.Time
	seq     uint64
	pending []*call
}

type call struct {
	at  time.Time
	seq uint64 // order among calls that are due at the same moment
	f   func()
}

// NewFake returns a clock that shows start.
func NewFake(start time.Time) *Fake { return &Fake{now: start} }

// Now returns the time to which the clock was last moved.
func (c *Fake) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f from the Advance or Set that reaches the moment d from now.
func (c *Fake) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	added := &call{at: c.now.Add(d), seq: c.seq, f: f}
	c.pending = append(c.pending, added)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		at := slices.Index(c.pending, added)
		if at < 0 {
			return false
		}
		c.pending = slices.Delete(c.pending, at, at+1)
		return true
	}
}

// Advance moves the clock by d and makes every call that falls due, in order, each at its own moment.
func (c *Fake) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

// Set moves the clock to t, never backwards, and makes every call that falls due, in order, each at its own moment.
func (c *Fake) Set(t time.Time) {
	for {
		due := c.next(t)
		if due == nil {
			return
		}
		due.f()
	}
}

// next takes the earliest call not later than limit off the list and moves the clock to it, or to limit when there is
// none.
func (c *Fake) next(limit time.Time) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first *call
	for _, p := range c.pending {
		if !p.at.After(limit) && (first == nil || p.at.Before(first.at) || p.at.Equal(first.at) && p.seq < first.seq) {
			first = p
		}
	}
	if first == nil {
		if limit.After(c.now) {
			c.now = limit
		}
		return nil
	}
	c.pending = slices.DeleteFunc(c.pending, func(p *call) bool { return p == first })
	if first.at.After(c.now) {
		c.now = first.at
	}
	return first
}
