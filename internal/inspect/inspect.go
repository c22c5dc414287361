// Package inspect reads a cluster at one instant for the commands that explain it. It only reads: from a live cluster, no matter who
// runs its autoscaler, or from files.
package inspect

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/reduced"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
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
	// PricesProblem states why prices are not those that were requested, or not all of them; empty if they are.
	PricesProblem string
	// Search are the feature gates and the limit of consolidation.
	Search consolidate.Settings
	// NominationWindow states how long an initialized node reserves capacity for a pod that it was launched for.
	NominationWindow time.Duration
	// LifecycleConditions follows the conditions of Nodes about maintenance.
	LifecycleConditions bool
	// Gates are the other feature gates that passes read, of the controller that the View is of; all off without one.
	Gates Gates
	// Notes are for people: what was ignored, and what looks like a mistake.
	Notes []string
}

// Gates are feature gates that passes read, of the same names, but for the gate RebootForRepair, which is Reboots.
type Gates struct {
	TerminateFirstDrift, TerminateFirstRepair, Reboots bool
}

// Prices is a catalog and where its prices come from, in words. Problem is why they are not those that were requested, or not all of
// them; empty if they are.
type Prices struct {
	planner.Catalog
	From, Problem string
}

// Config describes what a View depends on besides the cluster.
type Config struct {
	// Prices opens the catalog for the cluster: its region depends on the nodes and node classes.
	Prices func(*manifest.ClusterState) (Prices, error)
	// Settings are the settings of planning.
	Settings snapshot.Settings
	// NominationWindow states how long an initialized node reserves capacity for a pod that it was launched for.
	NominationWindow time.Duration
	// Search are the feature gates and the limit of consolidation, for the commands that search.
	Search consolidate.Settings
	// LifecycleConditions follows the conditions of Nodes about maintenance.
	LifecycleConditions bool
}

// Live reads a live cluster. It lists each kind that plans depend on, in pages, and needs the verb list for them. A
// cluster without a kind has none of it. Pods of one owner share what they have in common.
func Live(ctx context.Context, cluster client.Reader, now time.Time, c Config) (*View, error) {
	shared := reduced.NewSharer()
	reduce := func(o client.Object) {
		manifest.Scrub(o)
		_, _ = shared.Transform(o) // it changes o in place, and never fails
	}
	return Listed(now, func(kind client.ObjectList) ([]client.Object, error) {
		return manifest.List(ctx, cluster, kind, reduce)
	}, c)
}

// Listed makes the View of a cluster of lists of its objects: see manifest.Collect.
func Listed(now time.Time, list manifest.Lister, c Config) (*View, error) {
	state, err := manifest.Collect(now, list)
	if err != nil {
		return nil, err
	}
	return Of(state, c)
}

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
	config := planner.Config{
		Catalog: prices.Catalog, Settings: c.Settings, NominationWindow: c.NominationWindow, LifecycleConditions: c.LifecycleConditions,
	}
	snap, notes, err := planner.BuildSnapshot(state, config)
	if err != nil {
		return nil, err
	}
	return &View{
		ClusterState: state, Snapshot: snap, Catalog: prices.Catalog, Prices: prices.From, PricesProblem: prices.Problem,
		Search: c.Search, LifecycleConditions: c.LifecycleConditions,
		Notes: append(append([]string{}, state.Notes...), notes...), NominationWindow: c.NominationWindow,
	}, nil
}

// PriceList returns what nodes cost.
func (v *View) PriceList() *fleet.Prices {
	return fleet.PricesOf(fleet.Source{
		From: v.Prices, Problem: v.PricesProblem, Pools: v.Snapshot.Pools, NodePools: v.NodePools, NodeClasses: v.NodeClasses, Catalog: v.Catalog,
	})
}

// Offered lists what a NodePool can launch, with NodeOverlays applied, also one that launches nothing for pods.
func (v *View) Offered(pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	offers, _, err := planner.NewOffers(v.ClusterState, v.Catalog)
	if err != nil {
		return nil, err
	}
	return offers.Of(pool)
}

// With is the View of another state of the same cluster, with the same catalog and settings.
func (v *View) With(state *manifest.ClusterState) (*View, error) {
	config := planner.Config{
		Catalog: v.Catalog, Settings: v.Snapshot.Settings, NominationWindow: v.NominationWindow, LifecycleConditions: v.LifecycleConditions,
	}
	snap, notes, err := planner.BuildSnapshot(state, config)
	if err != nil {
		return nil, err
	}
	next := *v
	next.ClusterState, next.Snapshot = state, snap
	next.Notes = append(append([]string{}, state.Notes...), notes...)
	return &next, nil
}
