package operator

import (
	"errors"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/aws/noderepair"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/memory"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/repair"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	enginerepair "github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// wireNodes wires the reconcilers of Nodes: termination with its evictions, discovered memory, and node repair.
func (a *assembly) wireNodes() error {
	c, log, now := a.mgr.GetClient(), a.log, time.Now
	err := errors.Join(
		a.register(
			&memory.Reconciler{Client: c, Cloud: a.aws.Offerings},
			&termination.NodeReconciler{
				Client: c, Guard: a.deletions.Guard, Cloud: a.measure("node.termination").instances(a.aws.Instances), Evictor: a.evictor,
				Events: a.events, Metrics: a.metrics, Log: log, Now: now, Pace: a.pace,
				LifecycleConditions: a.settings.Gate(settings.GateNodeLifecycleConditions),
			},
		),
		a.addLoops(a.evictor),
	)
	if err != nil || a.repair.metrics == nil || !a.settings.LegacyNodeRepair {
		return err
	}
	return a.register(&repair.Reconciler{
		Client: c, Guard: a.deletions.Guard,
		Policies: noderepair.Legacy(), Events: a.events, Metrics: a.metrics, Repairs: a.repair.metrics, Log: log, Now: now,
		StabilizationWindow: repair.StabilizationWindow,
	})
}

// nodeRepair is node repair as part of disruption.
type nodeRepair struct {
	// policies are nil where disruption repairs nothing.
	policies *enginerepair.Policies
	// metrics are nil if the feature gate is off.
	metrics *repair.Metrics
}

// newNodeRepair compiles the repair policies if the feature gate is on.
func newNodeRepair(s settings.Settings, m *repair.Metrics) (nodeRepair, error) {
	if !s.Gate(settings.GateNodeRepair) {
		return nodeRepair{}, nil
	}
	if s.LegacyNodeRepair {
		return nodeRepair{metrics: m}, nil
	}
	policies, err := enginerepair.Compile(noderepair.Policies(s.AWSGate(settings.GateRebootForRepair)))
	return nodeRepair{policies, m}, err
}
