// Package awsimtest connects the AWS SDK to a simulated account, for tests.
package awsimtest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// World is an account with its endpoint.
type World struct {
	Sim   *awsim.Sim
	Clock *clock.Fake // stands still until it is moved
	URL   string
	// Config makes SDK clients that act as the account's administrator and never retry.
	Config aws.Config

	client *http.Client
}

// Start serves an empty account in us-east-1, without latency, until the test finishes.
//
// It enforces the IAM policies of role sessions; the administrator may do everything.
func Start(t testing.TB) *World {
	t.Helper()
	fake := clock.NewFake(time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC))
	sim, err := awsim.New(awsim.Options{Seed: 1, Clock: fake, Latency: -1, EnforceIAM: true})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim)
	t.Cleanup(server.Close)
	w := &World{Sim: sim, Clock: fake, URL: server.URL, client: server.Client()}
	w.Config = w.As(awsim.Credentials{AccessKeyID: credential.AdminAccessKeyID, SecretAccessKey: "test"})
	return w
}

// As returns a configuration that signs with other credentials.
func (w *World) As(c awsim.Credentials) aws.Config {
	return aws.Config{
		Region:       "us-east-1",
		HTTPClient:   wholeBodies{w.client},
		BaseEndpoint: aws.String(w.URL),
		Credentials:  credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken),
		Retryer:      func() aws.Retryer { return aws.NopRetryer{} },
	}
}

// wholeBodies hands a request's body to the transport in memory of its own.
//
// The SDK closes the body as soon as the answer's headers are there. A server in the same process can answer before the
// transport has seen the end of the body; finding it closed, the transport then breaks the connection under the answer.
type wholeBodies struct{ client *http.Client }

// Do implements aws.HTTPClient.
func (c wholeBodies) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return c.client.Do(r)
}

// Code is the API error code in err; empty without an error, "?" when it is no API error.
func Code(err error) string {
	if err == nil {
		return ""
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return "?"
	}
	return api.ErrorCode()
}

// OK returns a function that gives the answer of a call that must succeed: OK(client.Call(ctx, in))(t).
func OK[T any](out T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}
