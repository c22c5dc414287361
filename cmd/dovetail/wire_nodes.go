package main

import (
	"errors"
	"time"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovetail-k8s/dovetail/internal/aws/noderepair"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/memory"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/repair"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// wireNodes wires the reconcilers of Nodes: termination with its evictions, discovered memory, and node repair.
func (a *assembly) wireNodes() error {
	c, log, now := a.mgr.GetClient(), a.log, time.Now
	err := errors.Join(
		a.register(
			&memory.Reconciler{Client: c, Cloud: a.aws.Offerings},
			&termination.NodeReconciler{
				Client: c, Cloud: a.aws.Instances, Evictor: a.evictor, Events: a.events, Metrics: a.metrics, Log: log, Now: now,
			},
		),
		a.addLoops(a.evictor),
	)
	if err != nil || !a.settings.Gate(settings.GateNodeRepair) {
		return err
	}
	repairs, err := repair.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return err
	}
	return a.register(&repair.Reconciler{
		Client: c, Policies: noderepair.Legacy(), Events: a.events, Metrics: a.metrics, Repairs: repairs, Log: log, Now: now,
		StabilizationWindow: repair.StabilizationWindow,
	})
}
