package scale

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Config states what to measure.
type Config struct {
	Size Size
	// Dir is the state directory of the world; it must not hold one yet.
	Dir string
	// Dovetail is the product's binary.
	Dovetail string
	// Profiles is a directory for heap and CPU profiles of the controller; empty for none.
	Profiles string
	// Progress is given what comes next.
	Progress func(text string)
}

// Measure boots a world, fills it, and measures the controller in it. The report lists what was measured until an error.
func Measure(ctx context.Context, cfg Config) (report Report, err error) {
	begin := time.Now()
	report = Report{Size: cfg.Size, Machine: machine()}
	if err := cfg.Size.Check(); err != nil {
		return report, err
	}
	cfg.Progress("a cluster boots")
	w, err := world.Start(ctx, world.Config{Dir: cfg.Dir, Dovetail: cfg.Dovetail, Unwatched: true, GCPercent: GCPercent})
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := w.AwaitFailure(ctx); err != nil {
			cancel(err) // the controller has finished
		}
	}()
	f := &fleet{Cluster: w.Clusters[0], aws: w.AWS, size: cfg.Size}
	if f.store, err = f.Cluster.Store(); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, f.store.Close()) }()
	f.SetEnv("ENABLE_PROFILING", "true")
	m := &measurement{fleet: f, cfg: cfg, report: &report}
	for _, phase := range []struct {
		text string
		run  func(context.Context) error
	}{
		{"one node in each zone joins, and one pod of each workload runs", f.run},
		{"scheduler, controllers and instances stop", f.makePending},
		{"the samples are read", f.read},
		{fmt.Sprintf("%d nodes and %d pods are written", cfg.Size.Nodes, cfg.Size.Pods), m.grow},
		{"the controller starts", m.start},
		{fmt.Sprintf("at rest for %s", cfg.Size.Window), m.rest},
		{fmt.Sprintf("%d pods are replaced every second for %s", cfg.Size.Churn, cfg.Size.Window), m.churn},
		{"the metrics are scraped", m.scrape},
		{fmt.Sprintf("%d pods become pending", cfg.Size.Pending), m.burst},
		{"the controller is killed, and starts again", m.restart},
		{"nothing was terminated", m.unharmed},
	} {
		cfg.Progress(phase.text)
		if err := phase.run(ctx); err != nil {
			return report, fmt.Errorf("%s: %w (the log of the controller: %s)", phase.text, cause(ctx, err), f.ControllerLog())
		}
	}
	report.Took = time.Since(begin).Seconds()
	return report, nil
}

// cause is what has canceled ctx, else err.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

func (m *measurement) profile(name string) string { return filepath.Join(m.cfg.Profiles, name) }
