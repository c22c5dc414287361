package scenario

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/scenario/capture"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// metricsJob is the job of the scrapes, as Prometheus would label them. Their instance is the ID of the cluster.
const metricsJob = "dovetail"

// WithMetrics returns the scenario with the metrics of its controllers recorded at an interval, from their first start to the end,
// and at the end of each step: what a step has awaited is in the record, however soon the next step changes it.
func WithMetrics(s Scenario, r *capture.Recorder, interval time.Duration) Scenario {
	to := &metricsRecord{recorder: r, interval: interval}
	inner := s.Background
	s.Background = func(ctx context.Context, w *World) error {
		group, ctx := errgroup.WithContext(ctx)
		if inner != nil {
			group.Go(func() error { return inner(ctx, w) })
		}
		for _, c := range w.Clusters {
			group.Go(func() error { return to.record(ctx, c) })
		}
		return group.Wait()
	}
	s.Steps = slices.Clone(s.Steps)
	for i, step := range s.Steps {
		s.Steps[i].Run = func(ctx context.Context, w *World) error {
			if err := step.Run(ctx, w); err != nil {
				return err
			}
			for _, c := range w.Clusters {
				if err := to.scrape(ctx, c); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return s
}

// metricsRecord is where the metrics of a scenario's controllers are recorded.
type metricsRecord struct {
	recorder *capture.Recorder
	interval time.Duration
	// mu is held during a scrape: the recorder takes the scrapes of a controller in the order of their times.
	mu sync.Mutex
}

// record scrapes the controller of a cluster until ctx is done, which is not an error, and a last time then: what the last step has
// changed belongs to the record. A controller that does not answer is down, as for Prometheus; one that was never started has no
// scrapes.
func (m *metricsRecord) record(ctx context.Context, c *world.Cluster) error {
	for pause(ctx, m.interval) == nil {
		if err := m.scrape(ctx, c); err != nil {
			return err
		}
	}
	return m.scrape(context.WithoutCancel(ctx), c)
}

// scrape records one scrape of a controller, which has the interval to answer.
func (m *metricsRecord) scrape(ctx context.Context, c *world.Cluster) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := time.Now()
	answering, cancel := context.WithTimeout(ctx, m.interval)
	defer cancel()
	text, err := c.Metrics(answering)
	switch {
	case errors.Is(err, world.ErrNeverStarted) || ctx.Err() != nil:
		return nil
	case err != nil:
		text = "" // the controller is down
	}
	return m.recorder.Add(at, map[string]string{"job": metricsJob, "instance": c.ID}, text)
}
