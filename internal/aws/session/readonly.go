package session

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// ReadOnly returns a configuration with clients that refuse all other calls before they are sent, with the error of refuse. Credentials
// are obtained as before.
func ReadOnly(cfg aws.Config, refuse func(service, action string) error) aws.Config {
	return Guard(cfg, func(service, action string) error {
		if policy.Reads(action) {
			return nil
		}
		return refuse(service, action)
	})
}

// Guard returns a configuration with clients that send a call only if check returns no error, which is the call's otherwise.
func Guard(cfg aws.Config, check func(service, action string) error) aws.Config {
	out := cfg.Copy()
	out.APIOptions = append(append([]func(*middleware.Stack) error{}, cfg.APIOptions...), func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc(
			"dovetail.Guard",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
				middleware.InitializeOutput, middleware.Metadata, error,
			) {
				if err := check(awsmiddleware.GetServiceID(ctx), awsmiddleware.GetOperationName(ctx)); err != nil {
					return middleware.InitializeOutput{}, middleware.Metadata{}, err
				}
				return next.HandleInitialize(ctx, in)
			},
		), middleware.After)
	})
	return out
}
