package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
)

func TestStartRetriesWhileAWSFails(t *testing.T) {
	throttled := &smithy.GenericAPIError{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	denied := &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "You are not authorized"}
	broken := &smithy.GenericAPIError{Code: "InternalError", Fault: smithy.FaultServer}
	for _, tc := range []struct {
		name  string
		fails []error // one after the other, the last for ever; nil = success
		want  error
		calls int
		took  time.Duration
	}{
		{"at once", []error{nil}, nil, 1, 0},
		{"throttled for a while", []error{throttled, throttled, nil}, nil, 3, 3 * time.Second},
		{"AWS fails once", []error{broken, nil}, nil, 2, time.Second},
		{"denied", []error{denied}, denied, 1, 0},
		{"throttled, then denied", []error{throttled, denied}, denied, 2, time.Second},
		{"throttled for ever", []error{throttled}, throttled, 9, 55 * time.Second},
		{"ours", []error{errors.ErrUnsupported}, errors.ErrUnsupported, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, calls := time.Now(), 0
				err := retryAWS(t.Context(), slog.New(slog.DiscardHandler), "the test", func(context.Context) error {
					calls++
					return tc.fails[min(calls, len(tc.fails))-1]
				})
				if !errors.Is(err, tc.want) || calls != tc.calls || time.Since(begin) != tc.took {
					t.Errorf("%v after %d calls and %v; want %v, %d, %v", err, calls, time.Since(begin), tc.want, tc.calls, tc.took)
				}
			})
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := retryAWS(ctx, slog.New(slog.DiscardHandler), "the test", func(context.Context) error {
			cancel()
			return throttled
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// A recovery controller that fails, is throttled or does not answer keeps no controller from starting; a setting that a person has
// to put right does.
func TestControllerStartsWhileZonalShiftsCannotBeRead(t *testing.T) {
	denied := &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized"}
	for _, tc := range []struct {
		name string
		do   func(context.Context) error
		want error
		took time.Duration
	}{
		{"answers", func(context.Context) error { return nil }, nil, 0},
		{"500", func(context.Context) error {
			return &smithy.GenericAPIError{Code: "InternalServerException", Fault: smithy.FaultServer}
		}, nil, 0},
		{"throttled", func(context.Context) error { return &smithy.GenericAPIError{Code: "ThrottlingException"} }, nil, 0},
		{"no answer", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil, firstShiftsTimeout},
		{"denied", func(context.Context) error { return denied }, denied, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := readFirstShifts(t.Context(), slog.New(slog.DiscardHandler), tc.do)
				if !errors.Is(err, tc.want) || time.Since(began) != tc.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(began), tc.want, tc.took)
				}
			})
		})
	}
}
