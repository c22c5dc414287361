package session

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// ReadOnly returns a configuration whose clients refuse all other calls before they are sent, with the error of refuse. Credentials
// are obtained as before.
func ReadOnly(cfg aws.Config, refuse func(service, action string) error) aws.Config {
	out := cfg.Copy()
	out.APIOptions = append(append([]func(*middleware.Stack) error{}, cfg.APIOptions...), func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc(
			"dovetail.ReadOnly",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
				middleware.InitializeOutput, middleware.Metadata, error,
			) {
				if action := awsmiddleware.GetOperationName(ctx); !policy.Reads(action) {
					return middleware.InitializeOutput{}, middleware.Metadata{}, refuse(awsmiddleware.GetServiceID(ctx), action)
				}
				return next.HandleInitialize(ctx, in)
			},
		), middleware.After)
	})
	return out
}
