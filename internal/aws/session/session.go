// Package session configures the AWS SDK: region, credentials, limits, and errors that explain what to do when one is missing or
// rejected.
package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"github.com/dovetail-k8s/dovetail/internal/aws/ratelimit"
)

// Options are settings of the SDK in addition to those that it finds in its usual places.
type Options struct {
	// AppID is this program in the user agent of calls.
	AppID  string
	Logger logging.Logger
	// Region wins over the usual places; empty for none.
	Region string
	// Observer gets every call; nil for none.
	Observer Observer
}

// Load reads region and credentials from the SDK's usual places: environment, shared files, and the instance metadata
// service, which is only called for the region if it is nowhere else. No other call is made. Calls of EC2 are rate limited,
// each attempt at a call is bounded, and each action has a quota of retries.
func Load(ctx context.Context, o Options) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(longTimeout)), // also for what provides credentials
		config.WithAppID(o.AppID),
		config.WithLogger(o.Logger),
	}
	around := []func(*middleware.Stack) error{ratelimit.New().Add, bound}
	if o.Region != "" {
		options = append(options, config.WithRegion(o.Region))
	}
	if o.Observer != nil {
		around = append(around, observe(o.Observer))
	}
	options = append(options, config.WithAPIOptions(around))
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return cfg, fmt.Errorf("prepare the AWS SDK: %w", err)
	}
	if cfg.Region != "" {
		return withRetryer(cfg), nil
	}
	cfg, err = config.LoadDefaultConfig(ctx, append(options, config.WithEC2IMDSRegion())...)
	if err != nil {
		return cfg, &advised{"find out the AWS region", err, "set AWS_REGION, " +
			"or let this pod reach the instance metadata service (which needs a hop limit of 2, or the host's network)"}
	}
	return withRetryer(cfg), nil
}

// Authenticate checks that there are credentials. Its error names the source that was tried, and what to do.
func Authenticate(ctx context.Context, cfg aws.Config, getenv func(string) string) error {
	if cfg.Credentials == nil {
		return errors.New("there are no AWS credentials")
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return explainCredentials(err, getenv)
	}
	return nil
}

// Configured returns the error of Authenticate where nothing configures credentials, so that the process can never get any. Whatever
// else Authenticate fails for may pass.
func Configured(ctx context.Context, cfg aws.Config, getenv func(string) string) error {
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_PROFILE",
	} {
		if getenv(name) != "" {
			return nil
		}
	}
	if !strings.EqualFold(getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		return nil // the role of the instance
	}
	return Authenticate(ctx, cfg, getenv)
}
