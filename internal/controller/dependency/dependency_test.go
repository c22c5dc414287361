package dependency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

var errFailed = errors.New("InternalError")

// outage is a service that fails, or does not answer, for a time.
type outage struct {
	lasts time.Duration
	err   error // nil = it does not answer
}

func (o outage) read(began time.Time) func(context.Context) error {
	return func(ctx context.Context) error {
		if time.Since(began) >= o.lasts {
			return nil
		}
		if o.err != nil {
			return o.err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

func newSet(log *bytes.Buffer, dependencies ...Dependency) *Set {
	return New(Config{
		Dependencies: dependencies, Brief: func(err error) string { return err.Error() }, Changed: func() {},
		Log: slog.New(slog.NewTextHandler(log, nil)), Now: time.Now,
	})
}

func always(error) bool { return true }

// What launches need is read again after a second, then after growing pauses of half a minute at most; what they can do without holds
// them for its grace at most.
func TestLaunchesWaitAsLongAsTheOutage(t *testing.T) {
	for _, tc := range []struct {
		name     string
		required outage
		optional outage
		from, to time.Duration // of the first launch
		lines    int           // of the log
	}{
		{"all is well", outage{}, outage{}, 0, 0, 0},
		{"fails for six seconds", outage{lasts: 6 * time.Second, err: errFailed}, outage{}, 6 * time.Second, 10 * time.Second, 2},
		{"fails for five minutes", outage{lasts: 5 * time.Minute, err: errFailed}, outage{}, 5 * time.Minute, 5*time.Minute + 35*time.Second, 2},
		{"does not answer for a minute", outage{lasts: time.Minute}, outage{}, time.Minute, 2 * time.Minute, 2},
		{"the optional one fails for an hour", outage{}, outage{lasts: time.Hour, err: errFailed}, 15 * time.Second, 16 * time.Second, 2},
		{"the optional one does not answer for an hour", outage{}, outage{lasts: time.Hour}, 15 * time.Second, 16 * time.Second, 2},
		{"the optional one answers soon", outage{}, outage{lasts: 3 * time.Second, err: errFailed}, 3 * time.Second, 6 * time.Second, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				began := time.Now()
				s := newSet(&log,
					Dependency{Name: "types", Read: tc.required.read(began), Timeout: 20 * time.Second},
					Dependency{
						Name: "prices", Read: tc.optional.read(began), Timeout: 20 * time.Second, Optional: always, Grace: 15 * time.Second,
					},
				)
				if err := s.Err(); !errors.Is(err, cloudprovider.ErrNotKnownYet) {
					t.Errorf("before the first attempt: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				done := make(chan error)
				go func() { done <- s.Start(ctx) }()
				<-s.Allowed()
				if took := time.Since(began); took < tc.from || took > tc.to {
					t.Errorf("launches are held for %v, want %v to %v", took, tc.from, tc.to)
				}
				if err := s.Err(); err != nil {
					t.Errorf("launches wait all the same: %v", err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				for _, state := range s.States() {
					if !state.Known {
						t.Errorf("%+v in the end", state)
					}
				}
				if lines := strings.Count(log.String(), "\n"); lines != tc.lines {
					t.Errorf("%d lines logged, want %d: one per change of state\n%s", lines, tc.lines, log.String())
				}
			})
		})
	}
}

// Everything names what launches wait for, and since when.
func TestWhatLaunchesWaitForIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newSet(&bytes.Buffer{},
			Dependency{Name: "types", Read: outage{lasts: time.Hour, err: errFailed}.read(began), Timeout: time.Second},
			Dependency{Name: "cluster", Read: outage{}.read(began), Timeout: time.Second},
			Dependency{Name: "prices", Read: outage{lasts: time.Hour, err: errFailed}.read(began), Timeout: time.Second, Optional: always},
		)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Start(ctx) }()
		time.Sleep(10 * time.Second)
		cancel()
		if err := s.Err(); err == nil || err.Error() != "waiting for AWS: types (InternalError)" {
			t.Errorf("error %v", err)
		}
		want := []State{
			{Name: "types", Reason: "InternalError", Since: began, Launches: true},
			{Name: "cluster", Known: true},
			{Name: "prices", Reason: "InternalError", Since: began},
		}
		if got := s.States(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("states %+v, want %+v", got, want)
		}
		synctest.Wait()
	})
}

// An error that a person has to correct is no reason to go on without what is optional while AWS fails.
func TestOptionalDependencyHoldsLaunchesWhileItIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := errors.New("AccessDenied")
		s := newSet(&bytes.Buffer{}, Dependency{
			Name: "shifts", Read: outage{lasts: time.Minute, err: denied}.read(time.Now()), Timeout: time.Second, Grace: time.Second,
			Optional: func(err error) bool { return !errors.Is(err, denied) },
		})
		began := time.Now()
		go func() { _ = s.Start(t.Context()) }()
		<-s.Allowed()
		if held := time.Since(began); held < time.Minute {
			t.Errorf("launches were held for %v only", held)
		}
		synctest.Wait()
	})
}

// A cluster name that is another cluster's stops the process, whatever else is missing.
func TestIdentityMismatchEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mismatch := fmt.Errorf("find the cluster: %w", cloudprovider.ErrIdentityMismatch)
		s := newSet(&bytes.Buffer{},
			Dependency{Name: "types", Read: outage{lasts: time.Hour}.read(time.Now()), Timeout: time.Minute},
			Dependency{Name: "cluster", Read: func(context.Context) error { return mismatch }, Timeout: time.Minute},
		)
		if err := s.Attempt(t.Context(), "cluster"); !errors.Is(err, cloudprovider.ErrIdentityMismatch) {
			t.Errorf("before the start: %v", err)
		}
		if err := s.Start(t.Context()); !errors.Is(err, cloudprovider.ErrIdentityMismatch) {
			t.Errorf("error %v", err)
		}
	})
}

// A loop that plans begins when launches may, on the replicas that it is for.
func TestLoopsThatPlanAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newSet(&bytes.Buffer{},
			Dependency{Name: "credentials", Read: outage{lasts: time.Minute, err: errFailed}.read(began), Timeout: time.Second},
			Dependency{Name: "types", Read: outage{}.read(began), Timeout: time.Second, After: "credentials"},
		)
		if err := s.Err(); err.Error() != "waiting for AWS: credentials (being read), types (after credentials)" {
			t.Errorf("error %v", err)
		}
		started := make(chan time.Duration, 1)
		loop := s.Hold(everywhere(func(context.Context) error { started <- time.Since(began); return nil }))
		if l, ok := loop.(manager.LeaderElectionRunnable); !ok || l.NeedLeaderElection() {
			t.Error("a loop of every replica runs on the leader only")
		}
		if l := s.Hold(manager.RunnableFunc(nil)).(manager.LeaderElectionRunnable); !l.NeedLeaderElection() {
			t.Error("a loop of the leader runs everywhere")
		}
		go func() { _ = s.Start(t.Context()) }()
		if err := loop.Start(t.Context()); err != nil {
			t.Error(err)
		}
		if after := <-started; after < time.Minute || after > 2*time.Minute {
			t.Errorf("the loop began after %v", after)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		never := newSet(&bytes.Buffer{}, Dependency{Name: "types"}).Hold(everywhere(func(context.Context) error { return errFailed }))
		if err := never.Start(ended); err != nil {
			t.Errorf("the loop began while it was held: %v", err)
		}
		synctest.Wait()
	})
}

// An earlier answer lets launches go on while a read fails, after its grace; loops that delete begin when the read has succeeded, or when
// nothing stands in anymore.
func TestLoopsThatDeleteWaitWhileAnEarlierAnswerStandsIn(t *testing.T) {
	for _, tc := range []struct {
		name  string
		types outage
		// stands is how long the earlier answer may be used; zero if there is none.
		stands            time.Duration
		launches, deletes time.Duration
	}{
		{"all is well", outage{}, time.Hour, 0, 0},
		{"it fails", outage{lasts: 5 * time.Minute, err: errFailed}, time.Hour, 15 * time.Second, 5 * time.Minute},
		{"it does not answer", outage{lasts: 5 * time.Minute}, time.Hour, 15 * time.Second, 5 * time.Minute},
		{"the earlier answer becomes too old", outage{lasts: time.Hour, err: errFailed}, 10 * time.Minute, 15 * time.Second, 10 * time.Minute},
		{"there is no earlier answer", outage{lasts: 5 * time.Minute, err: errFailed}, 0, 5 * time.Minute, 5 * time.Minute},
		{"there is no earlier answer, and none comes", outage{lasts: 5 * time.Minute}, 0, 5 * time.Minute, 5 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				earlier := func() (time.Time, bool) { return began, time.Since(began) < tc.stands }
				s := newSet(&bytes.Buffer{}, Dependency{
					Name: "types", Read: tc.types.read(began), Timeout: 20 * time.Second, Grace: 15 * time.Second, StandsIn: earlier,
					Optional: func(error) bool { _, stands := earlier(); return stands },
				})
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				go func() { _ = s.Start(ctx) }()
				loop := s.HoldUntilRead(everywhere(func(context.Context) error { return nil }))
				<-s.Allowed()
				launches := time.Since(began)
				if standing := s.StandIns(); (len(standing) > 0) != (tc.launches < tc.deletes) {
					t.Errorf("when launches begin, %q stand in", standing)
				}
				if err := loop.Start(ctx); err != nil {
					t.Fatal(err)
				}
				deletes := time.Since(began)
				for what, took := range map[string][2]time.Duration{"launches": {launches, tc.launches}, "deletions": {deletes, tc.deletes}} {
					if late := took[0] - took[1]; late < 0 || late > time.Minute {
						t.Errorf("%s begin after %v, want %v", what, took[0], took[1])
					}
				}
				if standing := s.StandIns(); len(standing) > 0 {
					t.Errorf("in the end, %q stand in", standing)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// everywhere is a loop of every replica.
type everywhere func(context.Context) error

func (e everywhere) Start(ctx context.Context) error { return e(ctx) }
func (everywhere) NeedLeaderElection() bool          { return false }
