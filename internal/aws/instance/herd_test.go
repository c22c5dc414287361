package instance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
)

// countedEC2 counts the calls of DescribeInstances, and refuses them with a code if there is one.
type countedEC2 struct {
	fakeEC2
	code  string
	calls atomic.Int64
}

func (c *countedEC2) DescribeInstances(
	ctx context.Context, in *ec2.DescribeInstancesInput, options ...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	c.calls.Add(1)
	if c.code != "" {
		return nil, &smithy.GenericAPIError{Code: c.code, Message: "AWS was not able to validate the provided access credentials"}
	}
	return c.fakeEC2.DescribeInstances(ctx, in, options...)
}

func (c *countedEC2) CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error) {
	return &ec2.CreateTagsOutput{}, nil
}

// When an outage is over, all nodes of a large fleet are looked at. EC2 is called for hundreds of them at once: far fewer calls than its
// bucket of 100 holds. So it is while it refuses the credentials, which is no fault of single instances.
func TestAFleetOf5000NodesIsReadWithFewCalls(t *testing.T) {
	const nodes, most = 5000, 40
	for _, code := range []string{"", "ExpiredToken", "RequestExpired", "AuthFailure", "UnauthorizedOperation", "RequestLimitExceeded"} {
		t.Run("answer "+code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &countedEC2{code: code}
				s := New(Config{EC2: api, Identity: blue, Now: time.Now})
				var failed atomic.Int64
				var all sync.WaitGroup
				for i := range nodes {
					all.Go(func() {
						if _, err := s.Get(t.Context(), ProviderID("us-east-1a", fmt.Sprintf("i-%017d", i))); err != nil {
							failed.Add(1)
						}
					})
				}
				all.Wait()
				if n := api.calls.Load(); n > most {
					t.Errorf("%d calls of DescribeInstances, want %d at most", n, most)
				}
				if want := map[bool]int64{true: 0, false: nodes}[code == ""]; failed.Load() != want {
					t.Errorf("%d reads failed, want %d", failed.Load(), want)
				}
			})
		})
	}
}
