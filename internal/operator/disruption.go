package operator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/deletioncost"
	"github.com/dovetail-k8s/dovetail/internal/controller/disruption"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/drift"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/reboot"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/breaker"
	enginebreaker "github.com/dovetail-k8s/dovetail/internal/engine/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// driftSource compares instances with their node class, and their type with the types that are offered.
type driftSource struct {
	measuredDrift
	measuredOfferings
	// earlier returns when the instance types of an earlier process were listed that stand in; false if none do.
	earlier func() (time.Time, bool)
}

// InstanceTypes lists what EC2 has offered this process: that a type is missing in the list of an earlier one is no reason to replace a
// node.
func (d driftSource) InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	if stands(d.earlier) {
		return nil, fmt.Errorf("%w: %s, which an earlier process has listed", cloudprovider.ErrNotKnownYet, typesDependency)
	}
	return d.measuredOfferings.InstanceTypes(ctx, class)
}

// wireDisruption wires drift and consolidation: what finds nodes to disrupt, the queue that carries it out, and the circuit
// breaker that pauses it.
func (a *assembly) wireDisruption() error {
	c, live, log, now := a.mgr.GetClient(), a.mgr.GetAPIReader(), a.log, time.Now
	queue := &disruption.Queue{
		Client: c, Guard: a.deletions.Guard,
		Live: live, State: a.state, Breaker: a.pauses, Events: a.events, Metrics: a.metrics, Log: log, Now: now, Jitter: rand.Float64,
		Recorder: a.recorder,
	}
	if a.settings.SurgeDrain {
		queue.SurgeTimeout = a.settings.SurgeTimeout
	}
	loop := &disruption.Loop{
		Client: c, Live: live, State: a.state, Queue: queue, Labels: labels(), Breaker: a.pauses,
		StaticCapacity: a.settings.Gate(settings.GateStaticCapacity),
		TerminateFirst: disruption.TerminateFirst{
			Drift: a.settings.Gate(settings.GateTerminateFirstDrift), Repair: a.settings.Gate(settings.GateTerminateFirstRepair),
		},
		Consolidation: consolidate.Settings{SpotToSpot: a.settings.Gate(settings.GateSpotToSpot), MaxSteps: consolidate.DefaultMaxSteps},
		Events:        a.events, Metrics: a.metrics, Log: log, Now: now, ID: func() string { return string(uuid.NewUUID()) },
		ValidationDelay: a.pace.Of(disruption.ValidationDelay), Pace: a.pace, Quarantine: a.leftOut, Costly: a.costly, Panics: a.panics,
		Provisioning: a.batch, Turns: a.turns, Recorder: a.recorder,
	}
	if a.repair.policies != nil {
		loop.Repairs = a.repair.metrics
		if a.settings.AWSGate(settings.GateRebootForRepair) {
			loop.Rebooter = a.aws.Rebooter
		}
	}
	err := a.addLoops(&deletioncost.Loop{
		Client: c, State: a.state, Enabled: a.settings.Gate(settings.GatePodDeletionCost), Metrics: a.measures.deletionCosts, Log: log,
		After: time.After,
	})
	if err != nil {
		return err
	}
	drifts := a.measure("nodeclaim.drift")
	if err := loop.Register(a.deleting); err != nil {
		return err
	}
	return a.register(
		&breaker.Reconciler{
			Client: c, Rules: a.breakerRules(), Events: a.events, Metrics: a.measures.breaker, Log: log, Now: now,
		},
		&breaker.ClassReconciler{Client: c, Events: a.events, Now: now},
		&disruption.Consolidatable{Client: c, Log: log, Now: now},
		&disruption.PodEvents{Client: c},
		queue,
		&drift.Reconciler{
			Client: c, Labels: labels(), Log: log, Now: now,
			Cloud: driftSource{drifts.drift(a.aws.Drift), drifts.offerings(a.aws.Offerings), a.aws.Offerings.RecalledTypes},
		},
		&reboot.Reconciler{
			Client: c, Guard: a.deletions.Guard, Live: live, Cloud: a.measure("nodeclaim.reboot").rebooter(a.aws.Rebooter), Evictor: a.evictor,
			Events: a.events, Metrics: a.measures.reboots, Log: log, Now: now,
		},
	)
}

// breakerRules returns how the nodes that replace others are judged.
func (a *assembly) breakerRules() breaker.Rules {
	return breaker.Rules{
		Threshold: a.settings.MaxFailedReplacements, Faults: a.soakFaults,
		Windows: enginebreaker.Windows{Soak: a.pace.Of(enginebreaker.Soak), LateAfter: a.pace.Of(enginebreaker.LateAfter)},
		Pace:    a.pace,
	}
}
