package clusterstate

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
)

// known is a state that knows all there is, or not.
type known bool

func (k *known) Primed() bool                           { return bool(*k) }
func (k *known) NodeCount(context.Context) (int, error) { return 7, nil }

func (k *known) Version(context.Context) (cluster.Version, bool) { return cluster.Version{}, false }

// counted is a state that counts how often it is counted, and knows its version or not.
type counted struct {
	known
	times        int
	knowsVersion bool
}

func (c *counted) NodeCount(context.Context) (int, error) { c.times++; return 7, nil }

func (c *counted) Version(context.Context) (cluster.Version, bool) {
	return cluster.Version{}, c.knowsVersion
}

// Nodes are counted once as long as nothing changes.
func TestNodesThatDoNotChangeAreNotCounted(t *testing.T) {
	metrics, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	state := &counted{knowsVersion: true}
	w := &Watch{State: state, Metrics: metrics, Log: slog.Default(), Now: func() time.Time { return now }}
	for i, want := range []int{1, 1, 1} {
		if w.check(t.Context()); state.times != want || testutil.ToFloat64(metrics.StateNodes) != 7 {
			t.Errorf("check %d: counted %d times", i, state.times)
		}
		now = now.Add(checkInterval)
	}
	state.knowsVersion = false
	if w.check(t.Context()); state.times != 2 {
		t.Error("not counted, though it is not known whether anything has changed")
	}
}

// After half a minute there is an error every ten seconds, and the time grows until the state is synced.
func TestUnsynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, err := metrics.New(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		var all known
		w := &Watch{State: &all, Metrics: metrics, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now}
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go func() { _ = w.Start(ctx) }()
		for _, step := range []struct {
			lasts    time.Duration
			known    known
			unsynced float64
			errors   int
		}{
			{time.Second, false, 0, 0},
			{10 * time.Second, false, 10, 0},
			{20 * time.Second, false, 30, 0},
			{5 * time.Second, false, 35, 1},
			{5 * time.Second, false, 40, 1},
			{5 * time.Second, false, 45, 2},
			{30 * time.Second, false, 75, 5},
			{5 * time.Second, true, 0, 5},
			{30 * time.Second, false, 25, 5},
			{10 * time.Second, false, 35, 6},
		} {
			all = step.known
			time.Sleep(step.lasts)
			synctest.Wait()
			synced := 0.0
			if step.known {
				synced = 1
			}
			got, logged := testutil.ToFloat64(metrics.StateUnsynced), strings.Count(log.String(), "level=ERROR")
			if got != step.unsynced || testutil.ToFloat64(metrics.StateSynced) != synced || logged != step.errors {
				t.Errorf("%+v: unsynced for %vs, %d errors", step, got, logged)
			}
		}
		if got := testutil.ToFloat64(metrics.StateNodes); got != 7 {
			t.Errorf("%v nodes", got)
		}
	})
}
