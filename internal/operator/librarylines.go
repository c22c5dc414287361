package operator

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// libraryLines corrects what controller-runtime logs. Its lines about each controller and each group of them that starts or stops, some
// 120 at a start, are logged at level debug. The error that it logs whenever it is stopped is dropped: it has released the leader's
// lease, as it should. An error of a reconciler that repeats the one before for the same object is logged at level debug for a while:
// during an outage of AWS each object is tried again every minute, and has its condition.
type libraryLines struct {
	slog.Handler
	// object is the controller and the object of a reconcile.
	object string
	errors *repeats
}

func newLibraryLines(h slog.Handler) libraryLines {
	return libraryLines{Handler: h, errors: &repeats{}}
}

// details states how controller-runtime's lines begin that are about one part of a start or of an end: a controller, a source of one, a
// server, or a group of what is stopped.
var details = []string{
	"Starting EventSource", "Starting Controller", "Starting workers", "Starting metrics server", "Shutting down metrics server",
	"Shutdown signal received, waiting for all workers to finish", "All workers finished", "Stopping and waiting for ",
	"Wait completed, proceeding to shutdown the manager",
}

func isDetail(message string) bool {
	return slices.ContainsFunc(details, func(begin string) bool { return strings.HasPrefix(message, begin) })
}

func (o libraryLines) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case r.Message == "error received after stop sequence was engaged":
		expected := false
		r.Attrs(func(a slog.Attr) bool {
			expected = expected || a.Value.String() == "leader election lost"
			return !expected
		})
		if expected {
			return nil
		}
	case r.Message == "Reconciler error" && o.errors.repeat(o.object+errorOf(r), r.Time):
		if r.Level = slog.LevelDebug; !o.Enabled(ctx, r.Level) {
			return nil
		}
	case r.Level == slog.LevelInfo && isDetail(r.Message):
		if r.Level = slog.LevelDebug; !o.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return o.Handler.Handle(ctx, r)
}

func (o libraryLines) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if slices.Contains(objectKeys, a.Key) {
			o.object += a.Value.String() + "\x00"
		}
	}
	o.Handler = o.Handler.WithAttrs(attrs)
	return o
}

func (o libraryLines) WithGroup(name string) slog.Handler {
	o.Handler = o.Handler.WithGroup(name)
	return o
}

// objectKeys are the attributes that name what a reconcile is about.
var objectKeys = []string{"controller", "namespace", "name"}

// errorOf is the error that a line is about.
func errorOf(r slog.Record) (text string) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			text = a.Value.String()
		}
		return true
	})
	return text
}

const (
	// repeatAfter sets how long an error is not logged again.
	repeatAfter = 10 * time.Minute
	// maxRepeats bounds how many errors are remembered. Past it all are forgotten, and logged again.
	maxRepeats = 10_000
)

// repeats are the errors that were logged within repeatAfter.
type repeats struct {
	mu     sync.Mutex
	logged map[string]time.Time
}

// repeat reports whether an error was logged within repeatAfter before a time. If not, it counts as logged now.
func (p *repeats) repeat(text string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, found := p.logged[text]; found && now.Sub(at) < repeatAfter {
		return true
	}
	if p.logged == nil || len(p.logged) >= maxRepeats {
		p.logged = map[string]time.Time{}
	}
	p.logged[text] = now
	return false
}
