// Package dependency reads what launches need of other services, again and again until it is known, and reports what is missing. A
// process that starts during an outage works on what needs none of it, and launches as soon as it can.
package dependency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// The pause between two attempts doubles from firstPause to maxPause. An outage is mostly over after seconds, and one attempt in half a
// minute costs a service nothing.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// jitter spreads the attempts of many clusters over a tenth of the pause.
	jitter = 0.1
)

// Dependency is something that a service has to answer once. It stays known when the service fails later.
type Dependency struct {
	// Name holds what people call it, such as "EC2 instance types".
	Name string
	// Read makes one attempt. An error that is a cloudprovider.ErrIdentityMismatch stops the process.
	Read func(ctx context.Context) error
	// Timeout limits an attempt.
	Timeout time.Duration
	// After names a dependency that has to be known before the first attempt; empty for none.
	After string
	// MaxPause is the longest pause between two attempts, zero for half a minute.
	MaxPause time.Duration
	// Optional reports whether launches go on without it after an attempt that failed with err, nil before the end of the first. Nil
	// is never. Launches wait for Grace first, counted from the start, for an attempt that succeeds.
	Optional func(err error) bool
	Grace    time.Duration
	// StandsIn returns when an earlier answer was given that is used until it is known; false if there is none. Nil has none. Loops that
	// delete wait while one is used: see HoldUntilRead.
	StandsIn func() (given time.Time, stands bool)
}

// Config describes what a Set is made of. All of it is needed.
type Config struct {
	Dependencies []Dependency
	// Brief is an error in a few words, without what differs between two attempts: the log has a line when it changes.
	Brief func(error) string
	// Changed is called after the state of a dependency has changed.
	Changed func()
	Log     *slog.Logger
	Now     func() time.Time
}

// Set are the dependencies of a process. It is safe for concurrent use.
type Set struct {
	cfg     Config
	allowed chan struct{}
	// read is closed once launches are allowed and no earlier answer stands in for one that is not known.
	read chan struct{}

	mu      sync.Mutex
	began   time.Time
	entries []entry
	// launching is true once allowed is closed, deleting once read is.
	launching, deleting bool
}

// entry is a dependency with what its attempts came to.
type entry struct {
	Dependency
	known bool
	// err is that of the last attempt; nil before its end.
	err error
	// failing is since when attempts fail.
	failing time.Time
	// done is closed once it is known.
	done chan struct{}
}

// New returns a Set of which nothing is known.
func New(cfg Config) *Set {
	s := &Set{cfg: cfg, allowed: make(chan struct{}), read: make(chan struct{}), began: cfg.Now()}
	for _, d := range cfg.Dependencies {
		s.entries = append(s.entries, entry{Dependency: d, done: make(chan struct{})})
	}
	return s
}

// NeedLeaderElection is false: each replica knows everything before it leads.
func (*Set) NeedLeaderElection() bool { return false }

// Start reads every dependency until it is known, or ctx is done. Its error is a cloudprovider.ErrIdentityMismatch.
func (s *Set) Start(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	for i := range s.entries {
		all.Go(func() error { return s.obtain(ctx, i) })
		if grace := s.entries[i].Grace; grace > 0 {
			all.Go(func() error {
				select {
				case <-time.After(grace):
					s.update(func() bool { return true })
				case <-ctx.Done():
				}
				return nil
			})
		}
	}
	return all.Wait()
}

// obtain reads one dependency until it is known.
func (s *Set) obtain(ctx context.Context, i int) error {
	d := s.entries[i].Dependency
	for k := range s.entries {
		if s.entries[k].Name != d.After {
			continue
		}
		select {
		case <-s.entries[k].done:
		case <-ctx.Done():
			return nil
		}
	}
	pause := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: jitter, Cap: cmp.Or(d.MaxPause, maxPause), Steps: math.MaxInt}
	for {
		err := s.attempt(ctx, i)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, cloudprovider.ErrIdentityMismatch) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause.Step()):
		}
	}
}

// Attempt reads one dependency once, before Start, for as long as ctx lasts. It returns an identity mismatch only.
func (s *Set) Attempt(ctx context.Context, name string) error {
	for i := range s.entries {
		if s.entries[i].Name != name {
			continue
		}
		if err := s.attempt(ctx, i); errors.Is(err, cloudprovider.ErrIdentityMismatch) {
			return err
		}
	}
	return nil
}

// attempt reads a dependency once, unless it is known.
func (s *Set) attempt(ctx context.Context, i int) error {
	s.mu.Lock()
	d, known := s.entries[i].Dependency, s.entries[i].known
	s.mu.Unlock()
	if known {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	err := d.Read(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %s: %w", d.Timeout, err)
	}
	if ctx.Err() == nil && !errors.Is(err, cloudprovider.ErrIdentityMismatch) { // which its caller reports
		s.record(i, err)
	}
	return err
}

// record records the result of an attempt, and logs it if it differs from the last.
func (s *Set) record(i int, err error) {
	s.update(func() (changed bool) {
		e := &s.entries[i]
		before, was := e.err, e.failing
		if e.known, e.err = err == nil, err; e.known {
			close(e.done)
		}
		switch {
		case err == nil && before != nil:
			s.cfg.Log.Info("known now", "dependency", e.Name, "after", s.cfg.Now().Sub(was).Round(time.Millisecond).String())
		case err != nil && before == nil:
			e.failing = s.cfg.Now()
			about := []any{"dependency", e.Name, "launches-wait", !e.optional(), "error", err}
			if given := e.standsIn(); !given.IsZero() {
				about = append(about, "answer-in-use", given.UTC().Format(time.RFC3339), "age", s.cfg.Now().Sub(given).Round(time.Second).String())
			}
			s.cfg.Log.Warn("not known yet; trying again until it is", about...)
		case err != nil && s.cfg.Brief(err) != s.cfg.Brief(before):
			s.cfg.Log.Warn("still not known, for another reason", "dependency", e.Name, "error", err)
		default:
			return err == nil
		}
		return true
	})
}

// update changes the state, and passes the change on, if there is one.
func (s *Set) update(change func() (changed bool)) {
	s.mu.Lock()
	changed := change()
	if !s.launching && len(s.holding()) == 0 {
		s.launching, changed = true, true
		close(s.allowed)
	}
	if s.launching && !s.deleting && !slices.ContainsFunc(s.entries, func(e entry) bool { return !e.standsIn().IsZero() }) {
		s.deleting, changed = true, true
		close(s.read)
	}
	s.mu.Unlock()
	if changed {
		s.cfg.Changed()
	}
}

// optional reports whether launches go on without the dependency once its grace is over.
func (e *entry) optional() bool {
	return e.Optional != nil && (e.err != nil || e.Grace > 0) && e.Optional(e.err)
}

// standsIn returns when the answer was given that is used in place of one that is not known; zero if none is.
func (e *entry) standsIn() time.Time {
	if e.known || e.StandsIn == nil {
		return time.Time{}
	}
	given, stands := e.StandsIn()
	if !stands {
		return time.Time{}
	}
	return given
}

// holds reports whether launches wait for a dependency. s.mu is locked.
func (s *Set) holds(e *entry) bool {
	return !e.known && !(e.optional() && s.cfg.Now().Sub(s.began) >= e.Grace)
}

// holding are the dependencies that launches wait for. s.mu is locked.
func (s *Set) holding() (out []*entry) {
	for i := range s.entries {
		if e := &s.entries[i]; s.holds(e) {
			out = append(out, e)
		}
	}
	return out
}

// Allowed is closed once launches need wait for nothing anymore.
func (s *Set) Allowed() <-chan struct{} { return s.allowed }

// Err returns why launches wait, as a cloudprovider.ErrNotKnownYet; nil if they need not.
func (s *Set) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.launching {
		return nil
	}
	var reasons []string
	for _, e := range s.holding() {
		reasons = append(reasons, e.Name+" ("+s.reason(e)+")")
	}
	return fmt.Errorf("%w: %s", cloudprovider.ErrNotKnownYet, strings.Join(reasons, ", "))
}

// reason returns why a dependency is not known, in a few words.
func (s *Set) reason(e *entry) string {
	switch {
	case e.err == nil && e.After != "" && !s.known(e.After):
		return "after " + e.After
	case e.err == nil:
		return "being read"
	}
	return s.cfg.Brief(e.err)
}

// known reports whether the dependency with a name is. s.mu is locked.
func (s *Set) known(name string) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.Name == name && e.known })
}

// State is one dependency, for people.
type State struct {
	Name string
	// Known is true once it was read. Otherwise Reason states why not, since Since, and Launches whether launches wait for it.
	Known    bool
	Reason   string
	Since    time.Time
	Launches bool
	// StandsIn is when the earlier answer was given that is used meanwhile; zero if none is.
	StandsIn time.Time
}

// States are all dependencies, in their order.
func (s *Set) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]State, len(s.entries))
	for i := range s.entries {
		e := &s.entries[i]
		out[i] = State{Name: e.Name, Known: e.known}
		if e.known {
			continue
		}
		out[i].Reason, out[i].Since, out[i].Launches = s.reason(e), e.failing, !s.launching && s.holds(e)
		if out[i].StandsIn = e.standsIn(); !s.launching {
			out[i].StandsIn = time.Time{}
		}
		if e.failing.IsZero() {
			out[i].Since = s.began
		}
	}
	return out
}

// StandIns returns which earlier answers are used, with their times and why; nil if none are.
func (s *Set) StandIns() (out []string) {
	for _, state := range s.States() {
		if !state.StandsIn.IsZero() {
			out = append(out, fmt.Sprintf("%s (%s; those of %s)", state.Name, state.Reason, state.StandsIn.UTC().Format(time.RFC3339)))
		}
	}
	return out
}
