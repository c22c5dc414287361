// Package panics recovers from panics: it counts them, logs their stacks, and keeps a snapshot of the plan's input, so
// that the defect can be reproduced.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Panic is a recovered panic.
type Panic struct {
	Value any
	Stack []byte
	// Reported is set by Report, so that a panic that is returned as an error is recorded once.
	Reported bool
}

// Error is the value that the code panicked with. The stack is for the log.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Catch runs f and returns its panic; nil if there was none. It does not catch a panic in another goroutine: such
// goroutines run their work in Error.
func Catch(f func()) (caught *Panic) {
	defer func() {
		if value := recover(); value != nil {
			caught = &Panic{Value: value, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

// Error runs f and returns its error, or its panic as an error.
func Error(f func() error) (err error) {
	if caught := Catch(func() { err = f() }); caught != nil {
		return caught
	}
	return err
}

// ErrorLogged is Error for work without a Reporter: it logs the stack of a panic itself.
func ErrorLogged(log *slog.Logger, what string, f func() error) error {
	err := Error(f)
	if caught, ok := err.(*Panic); ok {
		log.Error("recovered from a panic; this is a defect of Dovetail, report it with the stack",
			"work", what, "panic", fmt.Sprint(caught.Value), "stack", string(caught.Stack))
	}
	return err
}

// EachLogged is f for one of many things: a panic at one of them is logged, and does not concern the others.
func EachLogged[T any](log *slog.Logger, what string, f func(T)) func(T) {
	return func(one T) {
		_ = ErrorLogged(log, what, func() error { f(one); return nil })
	}
}

// Reporter counts and logs the panics of planning, and keeps a snapshot of the cluster. The zero value does nothing.
type Reporter struct {
	// Count is by pass; nil counts nothing.
	Count *prometheus.CounterVec
	// Snapshots may be nil: then no snapshots are kept.
	Snapshots *Snapshots
	Log       *slog.Logger
}

// ReportError records the panic that err wraps, if there is one and it was not recorded before.
func (r *Reporter) ReportError(ctx context.Context, pass string, err error) {
	if caught := (*Panic)(nil); errors.As(err, &caught) {
		r.Report(ctx, pass, caught)
	}
}

// Report records a panic of a pass. It returns the path of the snapshot that reproduces it; empty if there is none.
func (r *Reporter) Report(ctx context.Context, pass string, caught *Panic) (snapshot string) {
	if r == nil || caught.Reported {
		return ""
	}
	caught.Reported = true
	if r.Count != nil {
		r.Count.WithLabelValues(pass).Inc()
	}
	var err error
	if r.Snapshots != nil {
		snapshot, err = r.Snapshots.Keep(ctx, pass)
	}
	if r.Log == nil {
		return snapshot
	}
	r.Log.Error("planning panicked; this is a defect of Dovetail, report it with the snapshot and the stack", "pass", pass,
		"panic", fmt.Sprint(caught.Value), "snapshot", snapshot, "stack", string(caught.Stack))
	if err != nil {
		r.Log.Warn("the snapshot of a panic is not kept; take one with `dovetail snapshot`", "pass", pass, "error", err)
	}
	return snapshot
}
