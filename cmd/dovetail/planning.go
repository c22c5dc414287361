package main

import (
	"errors"
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// solved makes a plan. A panic is a defect, and an error that says what to do.
func solved(solve func()) error {
	err := panics.Error(func() error {
		solve()
		return nil
	})
	if caught := (*panics.Panic)(nil); errors.As(err, &caught) {
		return fmt.Errorf("planning failed (%w), which is a defect of Dovetail: report it with the files of -f and this stack; "+
			"leave out files to find the pod that it fails with\n%s", err, caught.Stack)
	}
	return err
}

// planSettings are the settings as plans depend on them, the same for the controller and for dovetail plan.
func planSettings(p settings.Planning) (snapshot.Settings, error) {
	constraints, err := cluster.DefaultSpread(p.SchedulerConfig)
	if err != nil {
		return snapshot.Settings{}, err
	}
	return snapshot.Settings{
		PreferencePolicy: snapshot.PreferencePolicy(p.PreferencePolicy), MinValuesPolicy: snapshot.MinValuesPolicy(p.MinValuesPolicy), DefaultSpread: constraints, NodeCost: p.NodeCost,
	}, nil
}
