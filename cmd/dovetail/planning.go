package main

import (
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// planSettings are the settings as plans depend on them, the same for the controller and for dovetail plan.
func planSettings(p settings.Planning) (snapshot.Settings, error) {
	constraints, err := cluster.DefaultSpread(p.SchedulerConfig)
	if err != nil {
		return snapshot.Settings{}, err
	}
	return snapshot.Settings{
		PreferencePolicy: p.PreferencePolicy, MinValuesPolicy: p.MinValuesPolicy, DefaultSpread: constraints, NodeCost: p.NodeCost,
	}, nil
}
