package scenario

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/scenario/capture"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// metricsJob is the job of the scrapes, as Prometheus would label them. Their instance is the ID of the cluster.
const metricsJob = "dovetail"

// WithMetrics returns the scenario with the metrics of its controllers recorded at an interval, from their first start to the end.
func WithMetrics(s Scenario, r *capture.Recorder, interval time.Duration) Scenario {
	inner := s.Background
	s.Background = func(ctx context.Context, w *World) error {
		group, ctx := errgroup.WithContext(ctx)
		if inner != nil {
			group.Go(func() error { return inner(ctx, w) })
		}
		for _, c := range w.Clusters {
			group.Go(func() error { return record(ctx, c, r, interval) })
		}
		return group.Wait()
	}
	return s
}

// record scrapes the controller of a cluster until ctx is done, which is not an error, and a last time then: what the last step has
// changed belongs to the record. A controller that does not answer is down, as for Prometheus; one that was never started has no
// scrapes.
func record(ctx context.Context, c *world.Cluster, r *capture.Recorder, interval time.Duration) error {
	for pause(ctx, interval) == nil {
		if err := recordOnce(ctx, c, r, interval); err != nil {
			return err
		}
	}
	return recordOnce(context.WithoutCancel(ctx), c, r, interval)
}

// recordOnce records one scrape.
func recordOnce(ctx context.Context, c *world.Cluster, r *capture.Recorder, timeout time.Duration) error {
	at := time.Now()
	text, err := scrape(ctx, c, timeout)
	if errors.Is(err, world.ErrNeverStarted) || ctx.Err() != nil {
		return nil
	}
	return r.Add(at, map[string]string{"job": metricsJob, "instance": c.ID}, text)
}

// scrape returns the metrics of a controller; empty if it does not answer within the interval.
func scrape(ctx context.Context, c *world.Cluster, interval time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	text, err := c.Metrics(ctx)
	if err != nil {
		return "", err
	}
	return text, nil
}
