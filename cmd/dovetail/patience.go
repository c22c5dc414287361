package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
)

// patience is how long a start waits for an AWS that does not answer well. Leaving at once would cost more: a pod that
// ends is started again ever more slowly, and what throttled its first call throttles the others too.
const patience = time.Minute

// patiently repeats what AWS keeps from succeeding, as long as that may pass. It returns the first error that will not,
// or the last one.
func patiently(ctx context.Context, log *slog.Logger, what string, do func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		err := do(ctx)
		if err == nil || !awserrors.Passing(err) || time.Now().Add(wait).After(deadline) {
			return err
		}
		log.Warn("AWS does not answer well; trying again", "what", what, "wait", wait.String(), "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
