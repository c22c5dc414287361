package session

import (
	"context"
	"errors"
	"strconv"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Seen is a call of an AWS API, or one attempt at it.
type Seen struct {
	Service, Action string
	// Code is the HTTP status of the answer, "0" if there was none.
	Code string
	Took time.Duration
	// Retries counts how many attempts came after the first; of calls only.
	Retries int
}

// Observer records calls. It is called concurrently.
type Observer interface {
	Call(Seen)
	Attempt(Seen)
}

// observe puts one middleware around a whole call and another around each attempt.
func observe(o Observer) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		attempts := new(int)
		whole := middleware.InitializeMiddlewareFunc(
			"dovetail.Call",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput,
				middleware.Metadata, error,
			) {
				begin := time.Now()
				out, metadata, err := next.HandleInitialize(ctx, in)
				seen := see(ctx, metadata, err, begin)
				seen.Retries = max(0, *attempts-1)
				o.Call(seen)
				return out, metadata, err
			},
		)
		each := middleware.DeserializeMiddlewareFunc(
			"dovetail.Attempt",
			func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput,
				middleware.Metadata, error,
			) {
				begin := time.Now()
				*attempts++ // attempts of one call follow each other
				out, metadata, err := next.HandleDeserialize(ctx, in)
				seen := see(ctx, metadata, err, begin)
				if response, ok := out.RawResponse.(*smithyhttp.Response); ok {
					seen.Code = strconv.Itoa(response.StatusCode)
				}
				o.Attempt(seen)
				return out, metadata, err
			},
		)
		if err := stack.Initialize.Add(whole, middleware.Before); err != nil {
			return err
		}
		return stack.Deserialize.Add(each, middleware.After)
	}
}

func see(ctx context.Context, metadata middleware.Metadata, err error, begin time.Time) Seen {
	seen := Seen{
		Service: middleware.GetServiceID(ctx), Action: middleware.GetOperationName(ctx), Code: "0", Took: time.Since(begin),
	}
	var answer *smithyhttp.ResponseError
	if response, ok := awsmiddleware.GetRawResponse(metadata).(*smithyhttp.Response); ok {
		seen.Code = strconv.Itoa(response.StatusCode)
	} else if errors.As(err, &answer) {
		seen.Code = strconv.Itoa(answer.HTTPStatusCode())
	}
	return seen
}
