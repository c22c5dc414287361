package disruption

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func TestAbnormalTimeBetweenRuns(t *testing.T) {
	tests := []struct {
		name string
		// waits are the times between passes; those that are negative are of passes that fail.
		waits []time.Duration
		want  []string
	}{
		{"passes come in time", []time.Duration{abnormalInterval, abnormalInterval}, nil},
		{
			"one comes late: each method is named once",
			[]time.Duration{abnormalInterval + time.Second, time.Second},
			[]string{"emptiness 15m1s", "static-drift 15m1s", "drift 15m1s", "consolidation 15m1s"},
		},
		{
			"passes fail for longer: said once",
			[]time.Duration{-10 * time.Minute, -6 * time.Minute, -time.Minute},
			[]string{"emptiness 16m0s", "static-drift 16m0s", "drift 16m0s", "consolidation 16m0s"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, emptyNodes()...)
			l, state := loop(f)
			var log strings.Builder
			l.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			if _, err := l.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, wait := range tt.waits {
				f.Clock = f.Clock.Add(wait.Abs())
				if l.State = state; wait < 0 {
					l.State = failingState{state, func() {}}
				}
				if _, err := l.pass(t.Context()); (err != nil) != (wait < 0) {
					t.Fatalf("error %v", err)
				}
			}
			var got []string
			for line := range strings.Lines(log.String()) {
				if _, said, ok := strings.Cut(strings.TrimSpace(line), `level=DEBUG msg="abnormal time between runs" name=`); ok {
					got = append(got, strings.ReplaceAll(said, "time_since=", ""))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("said (-want +got):\n%s", diff)
			}
		})
	}
}
