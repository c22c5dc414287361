package ratelimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"
)

// account is EC2 as far as throttling goes: one token bucket for all calls.
type account struct {
	// every nth call is rejected whatever the bucket holds; 0 for none.
	nth             int
	mu              sync.Mutex
	burst, rate     float64
	tokens          float64
	at              time.Time
	served, refused int
}

// Do implements aws.HTTPClient; an answer takes 20 ms.
func (a *account) Do(*http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.tokens = min(a.burst, a.tokens+a.rate*now.Sub(a.at).Seconds())
	a.at = now
	status, body := http.StatusOK, `<DescribeInstancesResponse/>`
	if a.tokens < 1 || a.nth > 0 && (a.served+a.refused)%a.nth == 0 {
		a.refused++
		status, body = http.StatusServiceUnavailable, `<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>`
	} else {
		a.tokens--
		a.served++
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// storm makes a number of calls from a number of callers, each with the SDK's default retries, and returns how many
// failed and how long it took.
func storm(t *testing.T, a *account, calls, callers int, limited bool) (failed int64, took time.Duration) {
	t.Helper()
	a.tokens, a.at = a.burst, time.Now()
	cfg := aws.Config{Region: "us-east-1", HTTPClient: a, Credentials: credentials.NewStaticCredentialsProvider("k", "s", "")}
	if limited {
		cfg.APIOptions = []func(*middleware.Stack) error{New().Add}
	}
	client, began, left := ec2.NewFromConfig(cfg), time.Now(), atomic.Int64{}
	left.Store(int64(calls))
	var errs atomic.Int64
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := client.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}); err != nil {
					errs.Add(1)
				}
			}
		})
	}
	done.Wait()
	return errs.Load(), time.Since(began)
}

// A burst of calls is spread over the time that EC2's limit requires. Without the limiter most calls are rejected.
func TestBurstOfCallsIsNotThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bare := &account{burst: 100, rate: 20}
		if failed, _ := storm(t, bare, 1000, 400, false); failed == 0 || bare.refused < 500 {
			t.Fatalf("without the limiter %d calls fail and %d attempts are refused: this is no storm", failed, bare.refused)
		}
		a := &account{burst: 100, rate: 20}
		failed, took := storm(t, a, 1000, 400, true)
		t.Logf("%d refused, %v", a.refused, took)
		if failed > 0 || a.refused > 50 || took > 60*time.Second {
			t.Errorf("%d calls failed, %d attempts were refused, it took %v; EC2 lets 1000 calls through in 45 s", failed, a.refused, took)
		}
	})
}

// Other programs use the same bucket: the rate drops to what they leave.
func TestCallsSlowDownWhenOthersUseTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{burst: 10, rate: 4}
		failed, took := storm(t, a, 400, 50, true)
		t.Logf("%d refused, %d failed, %v", a.refused, failed, took)
		if failed > 4 || a.refused > 140 || took > 3*time.Minute {
			t.Errorf("%d calls failed, %d attempts were refused, it took %v; EC2 lets 400 calls through in 98 s", failed, a.refused, took)
		}
	})
}

// If EC2 rejects one call in ten whatever the rate, calls continue at a good part of the documented rate.
func TestRandomRejectionsDoNotStopCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{burst: 1000, rate: 1000, nth: 10}
		failed, took := storm(t, a, 1000, 50, true)
		t.Logf("%d refused, %d failed, %v", a.refused, failed, took)
		if failed > 10 || took > 3*time.Minute {
			t.Errorf("%d calls failed, it took %v; at the documented rate it takes 50 s", failed, took)
		}
	})
}

// A raised limit is discovered and used.
func TestRaisedLimitIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{burst: 1000, rate: 200}
		failed, took := storm(t, a, 12000, 400, true)
		t.Logf("%d refused, %v", a.refused, took)
		if atDocumented := 595 * time.Second; failed > 0 || took > atDocumented/3 {
			t.Errorf("%d calls failed, it took %v, not much less than the %v of the documented rate", failed, took, atDocumented)
		}
	})
}

// A few calls never wait, and a canceled caller takes no token.
func TestSingleCallsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := newBucket(limit{burst: 2, rate: 1}), time.Now()
		for range 2 {
			if waited, err := b.take(t.Context()); waited || err != nil {
				t.Errorf("a call waits although there are tokens: %v", err)
			}
		}
		left, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer leave()
		if _, err := b.take(left); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that leaves gets %v", err)
		}
		if waited, err := b.take(t.Context()); !waited || err != nil || time.Since(began).Round(time.Millisecond) != time.Second {
			t.Errorf("the third call goes after %v, %v", time.Since(began), err)
		}
	})
}

func TestLimitsAreThoseThatEC2Documents(t *testing.T) {
	for action, want := range map[string]limit{
		"DescribeInstances": {100, 20}, "GetConsoleOutput": {100, 20}, "CreateFleet": {50, 5}, "CreateLaunchTemplate": {50, 5},
		"TerminateInstances": {100, 5}, "CreateTags": {100, 10}, "RunInstances": {5, 2},
	} {
		if got := limitOf(action); got != want {
			t.Errorf("%s: %+v, want %+v", action, got, want)
		}
	}
}
