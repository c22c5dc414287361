package journal

import (
	"sync"
	"time"
)

// Clock is the host's clock, except that it shows recorded times during a replay, and stops during a call: time
// stands still while one that may change something is made, so that it can be made again at the same time. It never
// goes back.
type Clock struct {
	mu      sync.Mutex
	held    bool
	shown   time.Time // while held; and the least that it shows afterwards
	waiting []*alarm  // that were set before the clock was let go
	live    bool
}

type alarm struct {
	at        time.Time
	f         func()
	cancelled bool
	cancel    func() bool
}

func newClock(at time.Time) *Clock { return &Clock{held: true, shown: at} }

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if now := time.Now(); !c.held && now.After(c.shown) {
		return now
	}
	return c.shown
}

// AfterFunc implements clock.Clock. While calls of old are made again, nobody is called: who is due then is called when
// the clock is let go.
func (c *Clock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live {
		return time.AfterFunc(d, f).Stop
	}
	a := &alarm{at: c.shown.Add(d), f: f}
	c.waiting = append(c.waiting, a)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.cancel != nil {
			return a.cancel()
		}
		pending := !a.cancelled
		a.cancelled = true
		return pending
	}
}

// show moves the clock to a time of old.
func (c *Clock) show(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.shown) {
		c.shown = at
	}
}

// hold has time stand still, and returns the time.
func (c *Clock) hold() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = c.now()
	c.held = true
	return c.shown
}

// goOn lets time go on, and calls anyone who is due.
func (c *Clock) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.live = false, true
	for _, a := range c.waiting {
		if !a.cancelled {
			a.cancel = time.AfterFunc(max(0, a.at.Sub(c.now())), a.f).Stop
		}
	}
	c.waiting = nil
}
