package operator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/dependency"
)

// A controller that waits for AWS is alive and ready, and lists what it waits for.
func TestProbesAnswerWhileAWSFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := func(context.Context) error {
			return &smithy.GenericAPIError{Code: "ExpiredToken", Message: "arn:aws:iam::1:role/x"}
		}
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		set := dependency.New(dependency.Config{
			Dependencies: []dependency.Dependency{
				{Name: "credentials", Read: func(context.Context) error { return nil }, Timeout: time.Second},
				{Name: "cluster", Read: expired, Timeout: time.Second, Optional: func(error) bool { return true }},
				{Name: "types", Read: hangs, Timeout: time.Second},
			},
			Brief: awserrors.Brief, Changed: func() {}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = set.Start(ctx) }()
		time.Sleep(10 * time.Second)
		cancel()
		synced := true
		p := &probes{synced: func(context.Context) bool { return synced }, now: time.Now}
		get := func(path string) (int, string) {
			answer := httptest.NewRecorder()
			p.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			return answer.Code, answer.Body.String()
		}
		const caches, passed = "[+]caches ok\n", "readyz check passed\n"
		for _, tc := range []struct {
			path   string
			synced bool
			known  bool // whether the controller has its dependencies
			code   int
			body   string
		}{
			{"/healthz", false, false, 200, "ok"},
			{"/readyz", false, false, 500, "[-]caches failed: they are not synced\nreadyz check failed\n"},
			{"/readyz?verbose", true, false, 200, caches + passed},
			{"/readyz", true, true, 200, "ok"},
			{"/readyz?verbose", true, true, 200, caches + "[+]credentials ok\n[-]cluster waiting for 10s: ExpiredToken\n" +
				"[-]types waiting for 9s: no answer (launches wait)\n" + passed},
		} {
			if synced = tc.synced; tc.known {
				p.dependencies.Store(set)
			}
			if code, body := get(tc.path); code != tc.code || body != tc.body {
				t.Errorf("GET %s: %d %q, want %d %q", tc.path, code, body, tc.code, tc.body)
			}
		}
		synctest.Wait()
	})
}

// What stands in for an answer of AWS is listed with its time.
func TestReadinessNamesEarlierAnswers(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	state := dependency.State{Name: "types", Reason: "InternalError", Since: now.Add(-time.Minute), StandsIn: now.Add(-time.Hour)}
	want := "[-]types waiting for 1m0s: InternalError (those of 2026-03-01T11:00:00Z are used; disruption waits)"
	if got := dependencyLine(state, now); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A cluster that is not verified has nothing changed in AWS, and no instance counts as gone; what the start reads is read.
func TestNothingIsChangedBeforeTheClusterIsVerified(t *testing.T) {
	verified := false
	check := guardCalls(func() bool { return verified })
	for action, allowed := range map[string]bool{
		"DescribeCluster": true, "DescribeInstanceTypes": true, "GetProducts": true, "DescribeSubnets": true, "ReceiveMessage": true,
		"DescribeInstances": false, "DescribeInstanceStatus": false, "CreateFleet": false, "TerminateInstances": false,
		"CreateInstanceProfile": false, "DeleteLaunchTemplate": false, "DeleteMessage": false, "CreateTags": false, "RebootInstances": false,
	} {
		err := check("x", action)
		if (err == nil) != allowed || (err != nil && !errors.Is(err, cloudprovider.ErrNotKnownYet)) {
			t.Errorf("%s: %v, want allowed = %v", action, err, allowed)
		}
	}
	verified = true
	if err := check("ec2", "TerminateInstances"); err != nil {
		t.Errorf("after the cluster is verified: %v", err)
	}
}
