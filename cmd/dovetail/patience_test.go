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

func TestPatience(t *testing.T) {
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
				err := patiently(t.Context(), slog.New(slog.DiscardHandler), "the test", func(context.Context) error {
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
		err := patiently(ctx, slog.New(slog.DiscardHandler), "the test", func(context.Context) error {
			cancel()
			return throttled
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
