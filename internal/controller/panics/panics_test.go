package panics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// panickingLoop is a loop that panics a few times, and then runs until it is stopped.
type panickingLoop struct {
	panics  int
	started []time.Time
}

func (s *panickingLoop) Start(ctx context.Context) error {
	s.started = append(s.started, time.Now())
	if len(s.started) <= s.panics {
		panic("broken")
	}
	<-ctx.Done()
	return nil
}

func (s *panickingLoop) NeedLeaderElection() bool { return false }

func TestLoopThatPanicsIsRestartedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "panics"}, []string{"loop"})
		var log bytes.Buffer
		loop := &panickingLoop{panics: 4}
		guarded := (&Restarter{Count: count, Log: slog.New(slog.NewTextHandler(&log, nil))}).Guard(loop)
		if g, ok := guarded.(interface{ NeedLeaderElection() bool }); !ok || g.NeedLeaderElection() {
			t.Error("the guarded loop runs on the leader only")
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- guarded.Start(ctx) }()
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		var pauses []time.Duration
		for i := range loop.started[1:] {
			pauses = append(pauses, loop.started[i+1].Sub(loop.started[i]))
		}
		if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, pauses); diff != "" {
			t.Errorf("pauses (-want +got):\n%s", diff)
		}
		if n := testutil.ToFloat64(count.WithLabelValues("*panics.panickingLoop")); n != 4 {
			t.Errorf("counted %v", n)
		}
		if !strings.Contains(log.String(), "panics_test.go") {
			t.Errorf("the log has no stack:\n%s", log.String())
		}
	})
}

func TestLoopThatReturnsIsNotRestarted(t *testing.T) {
	broken := errors.New("no lease")
	loop := (&Restarter{}).Guard(returningLoop{broken})
	if err := loop.Start(t.Context()); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

type returningLoop struct{ err error }

func (e returningLoop) Start(context.Context) error { return e.err }

// A few snapshots are kept, no more, none too large, and one of a kind for a while.
func TestSnapshotsOfPanicsDoNotFillTheDisk(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	dir, size := filepath.Join(t.TempDir(), "panics"), 100
	s := &Snapshots{Dir: dir, MaxBytes: 1000, Now: func() time.Time { return now }, Write: func(_ context.Context, w io.Writer) error {
		for range size {
			if _, err := w.Write([]byte("x")); err != nil {
				return err
			}
		}
		return nil
	}}
	first, err := s.Keep(t.Context(), "provisioning")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Keep(t.Context(), "provisioning"); err != nil || again != first {
		t.Errorf("%s, %v, want the first again", again, err)
	}
	for range 6 {
		now = now.Add(11 * time.Minute)
		if _, err := s.Keep(t.Context(), "disruption"); err != nil {
			t.Fatal(err)
		}
	}
	size = 1001
	now = now.Add(11 * time.Minute)
	if path, err := s.Keep(t.Context(), "disruption"); !errors.Is(err, errTooLarge) {
		t.Errorf("%s, %v, want that it is too large", path, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > maxSnapshots || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Size() != 100 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info, err)
		}
	}
}

// What cannot be kept is stated, and costs nothing else.
func TestPanicIsReportedThoughItsSnapshotCannotBeKept(t *testing.T) {
	var log bytes.Buffer
	count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "panics"}, []string{"pass"})
	r := &Reporter{Count: count, Log: slog.New(slog.NewTextHandler(&log, nil)), Snapshots: &Snapshots{
		Dir: "/proc/none", Now: time.Now, Write: func(context.Context, io.Writer) error { return nil },
	}}
	caught := Catch(func() { panic("broken") })
	if path := r.Report(t.Context(), "provisioning", caught); path != "" {
		t.Errorf("path %q", path)
	}
	r.ReportError(t.Context(), "provisioning", errors.Join(errors.New("other"), caught))
	if n := testutil.ToFloat64(count.WithLabelValues("provisioning")); n != 1 {
		t.Errorf("counted %v, want 1: it is one panic", n)
	}
	for _, want := range []string{"panic=broken", "panics_test.go", "is not kept"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log\n%s\nwant %q", log.String(), want)
		}
	}
}

func TestPanicInParallelWorkIsItsError(t *testing.T) {
	err := Error(func() error { panic("broken") })
	var caught *Panic
	if !errors.As(err, &caught) || err.Error() != "panic: broken" || !bytes.Contains(caught.Stack, []byte("panics_test.go")) {
		t.Errorf("error %v", err)
	}
	if err := Error(func() error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
}
