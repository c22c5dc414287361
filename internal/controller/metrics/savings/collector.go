package savings

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/computed"
	"github.com/dovetail-k8s/dovetail/internal/engine/bound"
	"github.com/dovetail-k8s/dovetail/internal/engine/savings"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// interval is how often lower bounds are computed; costShare bounds the share of a core that they take, in large clusters.
	interval, costShare = 5 * time.Minute, 100
	// longestBurst limits how long they wait while pods get nodes.
	longestBurst = 3 * time.Minute
)

// reading is what a scrape serves.
type reading struct {
	bounds map[string]float64
	pools  []savings.PoolAmount
}

// NewCollector returns a collector of the savings of a tracker and of the lower bounds of a loop, for the NodePools that exist. Both may be
// nil.
func NewCollector(t *Tracker, l *Loop, exists func(nodePool string) bool) *computed.Collector[reading] {
	read := func() (out reading, _ error) {
		if t != nil {
			out.pools = slices.DeleteFunc(t.Pools(), func(p savings.PoolAmount) bool { return !exists(p.NodePool) })
		}
		if l != nil {
			out.bounds = maps.Clone(l.last())
			maps.DeleteFunc(out.bounds, func(pool string, _ float64) bool { return !exists(pool) })
		}
		return out, nil
	}
	ofPool := func(name, help string, of func(savings.PoolAmount) float64) computed.Gauge[reading] {
		return computed.Gauge[reading]{Name: name, Help: help, Labels: []string{"nodepool"}, Each: func(r reading, send computed.Send) {
			for _, p := range r.pools {
				send(of(p), p.NodePool)
			}
		}}
	}
	return computed.New([]computed.Gauge[reading]{
		{
			Name: "dovetail_nodepools_lower_bound_cost", Labels: []string{"nodepool"},
			Help: "What nodes of a NodePool for the pods on its nodes cannot cost less than, in $/h; computed every 5 minutes, or less often.",
			Each: func(r reading, send computed.Send) {
				for _, pool := range slices.Sorted(maps.Keys(r.bounds)) {
					send(r.bounds[pool], pool)
				}
			},
		},
		ofPool("dovetail_nodepools_hourly_savings",
			"What finished disruption commands save in a NodePool now, in $/h: removed nodes less replacements, as EC2 gave them, less what was "+
				"launched for pods since. From the start of the process on.", func(p savings.PoolAmount) float64 { return p.Hourly }),
		ofPool("dovetail_nodepools_saved_dollars",
			"What that adds up to, in $, since the start of the process; it falls where replacements cost more.",
			func(p savings.PoolAmount) float64 { return p.Dollars }),
	}, read, func(error) {})
}

// launches are the passes that launch nodes for pods.
type launches interface {
	// AwaitBurstEnd waits until no burst of pods is planned, for at most the time given. It returns false if ctx is done first.
	AwaitBurstEnd(ctx context.Context, atMost time.Duration) bool
	// InBurst reports whether many pods arrive or are planned.
	InBurst() bool
}

// Loop computes lower bounds, on the leader.
type Loop struct {
	// Look is the cluster as the next pass would see it.
	Look func(ctx context.Context) (*snapshot.Snapshot, error)
	// Provisioning has the loop wait, and stop, while many pods arrive and get nodes.
	Provisioning launches
	Log          *slog.Logger
	Now          func() time.Time

	mu     sync.Mutex
	bounds map[string]float64
}

// NeedLeaderElection makes sure that only one process computes.
func (*Loop) NeedLeaderElection() bool { return true }

// Start computes until ctx is done.
func (l *Loop) Start(ctx context.Context) error {
	for wait := interval; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if !l.Provisioning.AwaitBurstEnd(ctx, longestBurst) {
			return nil
		}
		began := l.Now()
		if err := l.compute(ctx); err != nil && ctx.Err() == nil {
			l.Log.Error("computing the lower bounds of node pools", "error", err)
		}
		wait = max(interval, costShare*l.Now().Sub(began))
	}
}

// compute computes the bounds of all pools. After a burst of pods has stopped it, the last bounds stay.
func (l *Loop) compute(ctx context.Context) error {
	s, err := l.Look(ctx)
	if err != nil {
		return err
	}
	stop := func() bool { return ctx.Err() != nil || l.Provisioning.InBurst() }
	out := map[string]float64{}
	for i := range s.Pools {
		name := s.Pools[i].NodePool.Name
		hourly, ok := bound.OfPool(s, name, stop)
		if !ok {
			return nil
		}
		out[name] = hourly
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bounds = out
	return nil
}

func (l *Loop) last() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bounds
}
