package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/console"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/top"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
)

// reconnectInterval is how long after a failure one of several clusters is tried again.
const reconnectInterval = 15 * time.Second

// lateCluster is one of several clusters. It is reached while the others are shown already.
type lateCluster struct {
	name string
	open func(context.Context) (live.Cluster, error)

	mu      sync.Mutex
	watcher *live.Watcher
}

// run connects until it succeeds, and then watches.
func (c *lateCluster) run(ctx context.Context, send func(any)) {
	var lost time.Time
	for {
		cluster, err := c.open(ctx)
		if err == nil {
			watcher := live.NewWatcher(cluster)
			c.mu.Lock()
			c.watcher = watcher
			c.mu.Unlock()
			watcher.Run(ctx, send)
			return
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		send(top.Observed{Link: top.Link{Name: c.name, Lost: lost, LostWhy: err.Error()}})
		select {
		case <-ctx.Done():
			return
		case <-time.After(reconnectInterval):
		}
	}
}

func (c *lateCluster) connected() *live.Watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watcher
}

// lateSources are those of one of several contexts.
func (f *consoleFlags) lateSources(cmd *cobra.Command, name string) console.Sources {
	f.search = (&explainFlags{spotToSpot: f.spotToSpot}).consolidation()
	one := *f
	one.kube = f.kube.of(name)
	clusterName := ""
	if known, region := f.kube.eksCluster(name); known != "" {
		clusterName, one.region = known, region
	}
	late := &lateCluster{name: name, open: one.watched}
	return console.Sources{
		Version: version, Name: name, Now: time.Now, Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), Watch: late.run,
		View: func(ctx context.Context) (*inspect.View, error) {
			if w := late.connected(); w != nil {
				return w.View(ctx)
			}
			return nil, live.ErrLoading
		},
		Revision: func() int {
			if w := late.connected(); w != nil {
				return w.Version()
			}
			return 0
		},
		Diagnose: func(ctx context.Context) (doctor.Report, error) { return one.diagnose(ctx, clusterName) },
	}
}
