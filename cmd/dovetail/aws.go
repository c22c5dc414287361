package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"
	kubeversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"

	"github.com/dovetail-k8s/dovetail/internal/aws/session"
)

// loadSDK reads how AWS is reached. Calls are reported to the observer, if there is one.
func loadSDK(ctx context.Context, log *slog.Logger, calls session.Observer) (awssdk.Config, error) {
	return session.Load(ctx, sdkOptions(log, calls))
}

func sdkOptions(log *slog.Logger, calls session.Observer) session.Options {
	return session.Options{AppID: "dovetail-" + strings.ReplaceAll(version, "+", "-"), Logger: sdkLogger(log), Observer: calls}
}

// loadSDKIn is loadSDK for a region, if one is named.
func loadSDKIn(ctx context.Context, region string, log *slog.Logger) (awssdk.Config, error) {
	options := sdkOptions(log, nil)
	options.Region = region
	return session.Load(ctx, options)
}

// awsCalls counts and times calls of AWS under the names that operators have on their dashboards.
type awsCalls struct {
	calls, attempts       *prometheus.CounterVec
	callTime, attemptTime *prometheus.HistogramVec
	retries               *prometheus.HistogramVec
}

func newAWSCalls(registry prometheus.Registerer) (*awsCalls, error) {
	labels := []string{"service", "action", "code"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	times := prometheus.ExponentialBuckets(0.01, 1.5, 20)
	a := &awsCalls{
		calls:       counter("aws_sdk_go_request_total", "Calls of AWS APIs, retries included in the call."),
		attempts:    counter("aws_sdk_go_request_attempt_total", "Attempts at calls of AWS APIs."),
		callTime:    histogram("aws_sdk_go_request_duration_seconds", "How long calls of AWS APIs take, with all their attempts.", times),
		attemptTime: histogram("aws_sdk_go_request_attempt_duration_seconds", "How long attempts at calls of AWS APIs take.", times),
		retries:     histogram("aws_sdk_go_request_retry_count", "Attempts at a call of an AWS API after the first.", prometheus.LinearBuckets(0, 1, 11)),
	}
	for _, c := range []prometheus.Collector{a.calls, a.attempts, a.callTime, a.attemptTime, a.retries} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Call implements access.Observer.
func (a *awsCalls) Call(s session.Seen) {
	a.calls.WithLabelValues(s.Service, s.Action, s.Code).Inc()
	a.callTime.WithLabelValues(s.Service, s.Action, s.Code).Observe(s.Took.Seconds())
	a.retries.WithLabelValues(s.Service, s.Action, s.Code).Observe(float64(s.Retries))
}

// Attempt implements access.Observer.
func (a *awsCalls) Attempt(s session.Seen) {
	a.attempts.WithLabelValues(s.Service, s.Action, s.Code).Inc()
	a.attemptTime.WithLabelValues(s.Service, s.Action, s.Code).Observe(s.Took.Seconds())
}

// serverVersion is that of the API server.
func serverVersion(client discovery.ServerVersionInterface) (kubeversion.Info, error) {
	server, err := client.ServerVersion()
	if err != nil {
		return kubeversion.Info{}, fmt.Errorf("read the version of the cluster: %w", err)
	}
	return *server, nil
}

// minor is a version as image names have it, such as 1.33.
func minor(v kubeversion.Info) string { return v.Major + "." + strings.TrimSuffix(v.Minor, "+") }
