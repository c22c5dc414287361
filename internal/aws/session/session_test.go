package session

import (
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
)

// Whatever is called in EC2 draws on the client's own buckets, at each attempt.
func TestCallsOfEC2AreRateLimited(t *testing.T) {
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1") // nobody listens
	cfg, err := Load(t.Context(), Options{AppID: "dovetail-test", Logger: logging.Nop{}})
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	client := ec2.NewFromConfig(cfg, func(o *ec2.Options) {
		o.RetryMaxAttempts = 1
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			steps = stack.Finalize.List()
			return nil
		})
	})
	if _, err := client.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}); err == nil {
		t.Fatal("somebody has answered")
	}
	retry, limit := slices.Index(steps, "Retry"), slices.Index(steps, "dovetail.RateLimit")
	if limit < 0 || limit < retry {
		t.Errorf("the steps of a call are %v", steps)
	}
}
