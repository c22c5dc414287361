package session

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/logging"
)

// endpoint answers the calls of a client as it likes.
type endpoint func(action string, r *http.Request) (*http.Response, error)

func (e endpoint) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	action, _, _ := strings.Cut(strings.TrimPrefix(string(body), "Action="), "&")
	return e(action, r)
}

func response(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

const internalError = `<Response><Errors><Error><Code>InternalError</Code><Message>x</Message></Error></Errors></Response>`

// setAWS sets the environment of an AWS client.
func setAWS(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
}

// clientOf is a client of EC2 that is configured as the controller's, with answers of a test.
func clientOf(t *testing.T, answers endpoint) *ec2.Client {
	t.Helper()
	cfg, err := Load(t.Context(), Options{AppID: "dovetail-test", Logger: logging.Nop{}})
	if err != nil {
		t.Fatal(err)
	}
	return ec2.NewFromConfig(cfg, func(o *ec2.Options) { o.HTTPClient = answers })
}

// An API that takes connections and never answers costs a caller a minute at most, as an error that passes.
func TestCallThatHangsEnds(t *testing.T) {
	setAWS(t)
	for _, tc := range []struct {
		action string
		call   func(context.Context, *ec2.Client) error
		// within is for all attempts and the pauses between them.
		within time.Duration
	}{
		{"DescribeInstances", func(ctx context.Context, c *ec2.Client) error {
			_, err := c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
			return err
		}, 3*readTimeout + 10*time.Second},
		{"TerminateInstances", func(ctx context.Context, c *ec2.Client) error {
			_, err := c.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{"i-1"}})
			return err
		}, 3*longTimeout + 10*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := clientOf(t, func(_ string, r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			limited, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			err := tc.call(limited, client)
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || !strings.Contains(err.Error(), "EC2:"+tc.action+" does not answer within") {
				t.Errorf("%s: error %v", tc.action, err)
			}
			if took := time.Since(began); took > tc.within {
				t.Errorf("%s took %v, want %v at most", tc.action, took, tc.within)
			}
		})
	}
}

// While one action of EC2 fails, another one still survives a single error: the retries of the first use up no quota of others.
func TestFailingActionTakesNoRetriesOfOthers(t *testing.T) {
	setAWS(t)
	synctest.Test(t, func(t *testing.T) {
		failures := map[string]int{}
		client := clientOf(t, func(action string, _ *http.Request) (*http.Response, error) {
			if failures[action]++; action == "DescribeImages" || failures[action] == 1 {
				return response(http.StatusInternalServerError, internalError), nil
			}
			return response(http.StatusOK, "<TerminateInstancesResponse/>"), nil
		})
		for range 100 { // 200 retries of 5 tokens each, of 500
			if _, err := client.DescribeImages(t.Context(), &ec2.DescribeImagesInput{}); err == nil {
				t.Fatal("the images are described")
			}
		}
		if _, err := client.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{"i-1"}}); err != nil {
			t.Errorf("one error of another action is not retried: %v", err)
		}
	})
}

// AWS_MAX_ATTEMPTS holds with the quotas by action, too.
func TestUsersNumberOfAttemptsHolds(t *testing.T) {
	setAWS(t)
	t.Setenv("AWS_MAX_ATTEMPTS", "5")
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		client := clientOf(t, func(string, *http.Request) (*http.Response, error) {
			attempts++
			return response(http.StatusInternalServerError, internalError), nil
		})
		_, err := client.DescribeImages(t.Context(), &ec2.DescribeImagesInput{DryRun: aws.Bool(true)})
		if err == nil || attempts != 5 {
			t.Errorf("%d attempts, error %v; want 5", attempts, err)
		}
	})
}
