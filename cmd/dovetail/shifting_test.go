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
		{"no answer", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil, shiftsWithin},
		{"denied", func(context.Context) error { return denied }, denied, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := firstShifts(t.Context(), slog.New(slog.DiscardHandler), tc.do)
				if !errors.Is(err, tc.want) || time.Since(began) != tc.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(began), tc.want, tc.took)
				}
			})
		})
	}
}
