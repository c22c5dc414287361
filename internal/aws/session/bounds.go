package session

import (
	"context"
	"fmt"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// How long one attempt at a call may take, response included.
const (
	// readTimeout is for calls that change nothing. The largest page, of a thousand instances, takes EC2 a few seconds.
	readTimeout = 20 * time.Second
	// longTimeout is for calls that change something, since their outcome is unknown after a timeout, and for reads of a queue, which
	// wait for messages. CreateFleet for a hundred instances takes EC2 up to 15 s.
	longTimeout = time.Minute
)

// attemptTimeout returns how long an attempt at an action may take.
func attemptTimeout(action string) time.Duration {
	if policy.Reads(action) {
		return readTimeout
	}
	return longTimeout
}

// attemptTimeoutError is the end of an attempt that AWS did not answer in time. The SDK makes another attempt after it.
type attemptTimeoutError struct {
	service, action string
	after           time.Duration
}

func (e *attemptTimeoutError) Error() string {
	return fmt.Sprintf("%s:%s does not answer within %s", e.service, e.action, e.after)
}

// Timeout and Temporary make it a net.Error.
func (*attemptTimeoutError) Timeout() bool   { return true }
func (*attemptTimeoutError) Temporary() bool { return true }

// bound stops each attempt at a call after attemptTimeout. It comes after the client's rate limit, which is no time of AWS.
func bound(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc(
		"dovetail.AttemptTimeout",
		func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
			middleware.DeserializeOutput, middleware.Metadata, error,
		) {
			action := awsmiddleware.GetOperationName(ctx)
			limit := attemptTimeout(action)
			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			out, metadata, err := next.HandleDeserialize(limited, in)
			if err != nil && limited.Err() != nil && ctx.Err() == nil {
				err = &attemptTimeoutError{awsmiddleware.GetServiceID(ctx), action, limit}
			}
			return out, metadata, err
		},
	), middleware.Before)
}
