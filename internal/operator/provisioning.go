package operator

import (
	"errors"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// wireProvisioning wires the provisioner, and the triggers that start a batch.
func (a *assembly) wireProvisioning() error {
	c := a.mgr.GetClient()
	return errors.Join(
		a.register(
			&provisioning.ClaimTrigger{Client: c, Batch: a.batch},
			&provisioning.PoolTrigger{Client: c, Batch: a.batch},
		),
		a.addLoops(&provisioning.PodTrigger{Pods: a.pods, Batch: a.batch, Decisions: a.decisions, Log: a.log}),
		a.addHeldLoops(&provisioning.Provisioner{
			Client: c, Live: a.mgr.GetAPIReader(), State: a.state, Batch: a.batch, Events: a.events, Metrics: a.metrics, Decisions: a.decisions,
			Log: a.log, Now: time.Now, ValidatePlans: a.settings.ValidatePlans, Quarantine: a.leftOut, Costly: a.costly, Panics: a.panics,
			Recorder: a.recorder, Turns: a.turns,
			TerminateFirst: a.settings.Gate(settings.GateTerminateFirstDrift), Pace: a.pace,
		}),
	)
}
