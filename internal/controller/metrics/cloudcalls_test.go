package metrics

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

func TestCloudCalls(t *testing.T) {
	c, err := NewCloudCalls(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for label, err := range map[string]error{
		"":                          nil,
		"NodeClaimNotFoundError":    fmt.Errorf("terminate: %w", cloudprovider.ErrNotFound),
		"InsufficientCapacityError": &cloudprovider.CreateError{Err: &cloudprovider.InsufficientCapacityError{Err: errors.New("no m5.large")}},
		"NodeClassNotReadyError":    &cloudprovider.NodeClassNotReadyError{Err: errors.New("no subnet")},
		"unknown":                   errors.New("throttled"),
	} {
		c.Begin("nodeclaim.launch", "Create").End("general", err)
		if label == "" {
			continue
		}
		if n := testutil.ToFloat64(c.errors.WithLabelValues("nodeclaim.launch", "Create", "aws", label, "general")); n != 1 {
			t.Errorf("%v counted as %s", n, label)
		}
	}
	if n := testutil.CollectAndCount(c.errors); n != 4 {
		t.Errorf("%d series of errors, want 4: a call that succeeds is none", n)
	}
	if n := testutil.CollectAndCount(c.duration); n != 1 {
		t.Errorf("%d series of durations", n)
	}
}
