package doctorloop

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

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controller/turns"
)

// The gauge shows what is found now; the log states each thing once an hour.
func TestFindingsAreCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics, err := metrics.New(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		finding := Finding{
			Check:    "storage-immediate",
			Severity: "warning",
			Object:   "StorageClass gp2",
			Seen:     "volumeBindingMode is Immediate",
		}
		found := []Finding{finding, finding}
		found[1].Object = "StorageClass io2"
		var log bytes.Buffer
		l := &Loop{
			Check:   func(context.Context) []Finding { return found },
			Metrics: metrics,
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Now:     time.Now, Provisioning: busy(0), Turns: &turns.Turns{},
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = l.Start(ctx) }()
		gauge := func() float64 {
			synctest.Wait()
			return testutil.ToFloat64(metrics.DoctorFindings.WithLabelValues("storage-immediate", "warning"))
		}
		time.Sleep(initialDelay)
		if gauge() != 2 || strings.Count(log.String(), "gp2") != 1 {
			t.Errorf("at first: gauge %v, log %s", gauge(), log.String())
		}
		found = found[:1]
		time.Sleep(interval)
		if gauge() != 1 || strings.Count(log.String(), "gp2") != 1 {
			t.Errorf("ten minutes later: gauge %v, log %s", gauge(), log.String())
		}
		time.Sleep(logDedupeWindow)
		if gauge() != 1 || strings.Count(log.String(), "gp2") != 2 {
			t.Errorf("an hour later: gauge %v, log %s", gauge(), log.String())
		}
		found = nil
		time.Sleep(interval)
		if gauge() != 0 {
			t.Errorf("mended: gauge %v", gauge())
		}
		cancel()
		synctest.Wait()
	})
}

// busy is a provisioner that plans for a while.
type busy time.Duration

func (b busy) AwaitBurstEnd(ctx context.Context, atMost time.Duration) bool {
	select {
	case <-time.After(min(time.Duration(b), atMost)):
		return true
	case <-ctx.Done():
		return false
	}
}

// The checks wait until nodes for pods are planned, and not forever.
func TestChecksWaitForPlans(t *testing.T) {
	for planning, waits := range map[time.Duration]time.Duration{20 * time.Second: 20 * time.Second, time.Hour: longestBurst} {
		synctest.Test(t, func(t *testing.T) {
			metrics, err := metrics.New(prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			start, checked := time.Now(), time.Duration(0)
			l := &Loop{Metrics: metrics, Log: slog.New(slog.DiscardHandler), Now: time.Now, Provisioning: busy(planning), Turns: &turns.Turns{}}
			l.Check = func(context.Context) []Finding {
				checked = time.Since(start)
				cancel()
				return nil
			}
			_ = l.Start(ctx)
			if checked != initialDelay+waits {
				t.Errorf("plans take %v: checked after %v, want %v", planning, checked, initialDelay+waits)
			}
		})
	}
}
