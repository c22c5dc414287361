// Package inspect reads a cluster at one instant for the commands that explain it. It only reads: from a live cluster, whoever
// runs its autoscaler, or from files.
package inspect

import (
	"context"
	"errors"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// View is a cluster at one instant. Readers share it and do not change it.
type View struct {
	// ClusterState is the API objects, without what plans do not depend on: see manifest.Dump.
	*manifest.ClusterState
	// Snapshot is the same state for the engine.
	Snapshot *snapshot.Snapshot
	// Catalog lists what the node classes can launch.
	Catalog planner.Catalog
	// Prices states in words where the prices of the catalog come from.
	Prices string
	// Search are the feature gates and the limit of consolidation.
	Search consolidate.Settings
	// Notes are for people: what was ignored, and what looks like a mistake.
	Notes []string

	config planner.Config // for With
}

// Prices is a catalog and where its prices come from, in words.
type Prices struct {
	planner.Catalog
	From string
}

// Config is what a View depends on besides the cluster.
type Config struct {
	// Prices opens the catalog for the cluster: its region depends on the nodes and node classes.
	Prices func(*manifest.ClusterState) (Prices, error)
	// Settings are those of planning.
	Settings snapshot.Settings
	// NominationWindow is how long an initialized node reserves capacity for a pod that it was launched for.
	NominationWindow time.Duration
	// Search are the feature gates and the limit of consolidation, for the commands that search.
	Search consolidate.Settings
}

// Live reads a live cluster. It lists each kind that plans depend on, in pages, and needs the verb list for them. A
// cluster without a kind has none of it.
func Live(ctx context.Context, cluster client.Reader, now time.Time, c Config) (*View, error) {
	// One end of the pipe closes with the error of the other, so neither side waits for the other forever.
	read, write := io.Pipe()
	dumped := make(chan error, 1)
	go func() {
		err := manifest.DumpJSON(ctx, cluster, now, write)
		_ = write.CloseWithError(err) // never fails
		dumped <- err
	}()
	view, err := Files(manifest.Input{Paths: []string{"-"}, Stdin: read, MaxBytes: maxLive}, c)
	_ = read.CloseWithError(errStopped) // never fails
	if failed := <-dumped; failed != nil && !errors.Is(failed, errStopped) {
		return nil, failed
	}
	return view, err
}

// errStopped ends the writer if the reader has stopped early.
var errStopped = errors.New("the reader has stopped")

// maxLive is how many bytes of JSON are read of a live cluster: 20 times those of 100,000 pods. It bounds the memory if
// the API server never stops.
const maxLive = 8 << 30

// Files reads a cluster from files: a snapshot of a cluster, or manifests.
func Files(in manifest.Input, c Config) (*View, error) {
	state, err := in.Read()
	if err != nil {
		return nil, err
	}
	return Of(state, c)
}

// Of makes the View of a cluster state.
func Of(state *manifest.ClusterState, c Config) (*View, error) {
	prices, err := c.Prices(state)
	if err != nil {
		return nil, err
	}
	config := planner.Config{Catalog: prices.Catalog, Settings: c.Settings, NominationWindow: c.NominationWindow}
	snap, notes, err := planner.BuildSnapshot(state, config)
	if err != nil {
		return nil, err
	}
	return &View{
		ClusterState: state, Snapshot: snap, Catalog: prices.Catalog, Prices: prices.From, Search: c.Search,
		Notes: append(append([]string{}, state.Notes...), notes...), config: config,
	}, nil
}

// With is the View of another state of the same cluster, at the same prices.
func (v *View) With(state *manifest.ClusterState) (*View, error) {
	snap, notes, err := planner.BuildSnapshot(state, v.config)
	if err != nil {
		return nil, err
	}
	next := *v
	next.ClusterState, next.Snapshot = state, snap
	next.Notes = append(append([]string{}, state.Notes...), notes...)
	return &next, nil
}
