package planner

import (
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// Settings are the settings that plans depend on, the same for the controller and for dovetail plan.
func Settings(p settings.Planning) (snapshot.Settings, error) {
	scheduler, err := cluster.ParseSchedulerConfig(p.SchedulerConfig)
	if err != nil {
		return snapshot.Settings{}, err
	}
	return snapshot.Settings{
		PreferencePolicy: snapshot.PreferencePolicy(p.PreferencePolicy), PreferenceCost: p.PreferenceCost,
		MinValuesPolicy: snapshot.MinValuesPolicy(p.MinValuesPolicy), DefaultSpread: scheduler.DefaultSpread, Profiles: scheduler.Profiles,
		NodeCost: p.NodeOverheadCost,
	}, nil
}
