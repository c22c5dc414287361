package session

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// perAction is a retryer with a quota of retries for each action. The SDK's own has one quota for all actions of a service: while one
// of them fails, its retries use up the quota, and a single error then fails every other call at its first attempt.
type perAction struct {
	// decide is the same for all actions: what is retried, how often, and after which delay.
	decide *retry.Standard
	mu     sync.Mutex
	quotas map[string]*retry.Standard
}

// withRetryer gives each client that is made of cfg a retryer of its own. The user's number of attempts holds, and so does the
// adaptive mode. It is set after cfg is loaded, since the SDK ignores these settings otherwise.
func withRetryer(cfg aws.Config) aws.Config {
	if cfg.RetryMode != aws.RetryModeAdaptive {
		cfg.Retryer = func() aws.Retryer { return newPerAction() }
	}
	return cfg
}

// newPerAction returns the retryer of one client.
func newPerAction() *perAction {
	return &perAction{decide: retry.NewStandard(), quotas: map[string]*retry.Standard{}}
}

// quota is that of the action that ctx is about.
func (p *perAction) quota(ctx context.Context) *retry.Standard {
	action := awsmiddleware.GetServiceID(ctx) + "." + awsmiddleware.GetOperationName(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	q, known := p.quotas[action]
	if !known {
		q = retry.NewStandard()
		p.quotas[action] = q
	}
	return q
}

// IsErrorRetryable implements aws.Retryer.
func (p *perAction) IsErrorRetryable(err error) bool { return p.decide.IsErrorRetryable(err) }

// MaxAttempts implements aws.Retryer.
func (p *perAction) MaxAttempts() int { return p.decide.MaxAttempts() }

// RetryDelay implements aws.Retryer.
func (p *perAction) RetryDelay(attempt int, err error) (time.Duration, error) {
	return p.decide.RetryDelay(attempt, err)
}

// GetRetryToken implements aws.Retryer: a retry is paid from the quota of its action.
func (p *perAction) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	return p.quota(ctx).GetRetryToken(ctx, err)
}

// GetInitialToken implements aws.Retryer. The SDK calls GetAttemptToken in its place: without a context there is no action with a quota
// that a success could refill.
func (p *perAction) GetInitialToken() func(error) error { return func(error) error { return nil } }

// GetAttemptToken implements aws.RetryerV2: a success refills the quota of its action.
func (p *perAction) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	return p.quota(ctx).GetAttemptToken(ctx)
}

var _ aws.RetryerV2 = (*perAction)(nil)
