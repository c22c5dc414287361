package operator

import (
	"errors"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/buffer"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/expiration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/health"
	nodeoverlay "github.com/dovetail-k8s/dovetail/internal/controller/nodepool/overlay"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/static"
	nodepoolstatus "github.com/dovetail-k8s/dovetail/internal/controller/nodepool/status"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// wireNodePools wires the reconcilers of NodePools, and those of features on top of them that are off unless their gate is on.
func (a *assembly) wireNodePools() error {
	c, log, now := a.mgr.GetClient(), a.log, time.Now
	reconcilers := []registrar{
		&health.Reconciler{Client: c, Tracker: a.registrations, Log: log},
		&nodepoolstatus.Reconciler{
			Client: c, Events: a.events, Log: log, Now: now, StaticCapacity: a.settings.Gate(settings.GateStaticCapacity),
			Held: a.joining.guard.PoolHeld, Triggers: a.joining.pools,
		},
		&expiration.Reconciler{Client: c, State: a.state, Events: a.events, Behind: a.measures.behind, Now: now},
	}
	if a.settings.Gate(settings.GateStaticCapacity) {
		reconcilers = append(reconcilers, &static.Reconciler{
			Client: c, Guard: a.deletions.Guard, State: a.state, Labels: labels(), Events: a.events, Metrics: a.metrics, Log: log, Now: now,
			TerminateFirst: a.settings.Gate(settings.GateTerminateFirstDrift),
		})
	}
	if a.settings.Gate(settings.GateCapacityBuffer) {
		reconcilers = append(reconcilers, &buffer.Reconciler{Client: c, Batch: a.batch, Log: log, Now: now})
	}
	if a.overlays != nil {
		terms := overlay.Terms{Labels: labels(), Resources: awsv1.Resources()}
		reconcilers = append(reconcilers, &nodeoverlay.Reconciler{
			Client: c, Types: a.aws.Offerings, Planning: a.overlays, Terms: terms, Log: log, Now: now,
		})
	}
	return errors.Join(
		a.register(reconcilers...),
		a.addLoops(&nodepoolstatus.Counter{
			Client: c, State: a.state, Metrics: a.metrics, OmitMetrics: a.settings.DisableClusterStateObservability, Log: log,
			Now: now,
		}),
	)
}
