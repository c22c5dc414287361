package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclaim"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclass"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/adoption"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/termination"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/consistency"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/expiration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/garbagecollection"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/hydration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/initialization"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/join"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/launch"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/liveness"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/placementgroup"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/registration"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/reservation"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/tagging"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// claimInstances are the instances of claims: found by provider ID or by claim, and terminated.
type claimInstances struct {
	measuredInstances
	*nodeclaim.Launcher
}

// wireNodeClaims wires the lifecycle of NodeClaims from launch to termination, and the garbage collection of what it leaves.
func (a *assembly) wireNodeClaims() error {
	c, live, log, now := a.mgr.GetClient(), a.mgr.GetAPIReader(), a.log, time.Now
	instances := func(controller string) measuredInstances { return a.measure(controller).instances(a.aws.Instances) }
	launched := func(controller string) claimInstances { return claimInstances{instances(controller), a.aws.Launcher} }
	most, err := disrupt.ParseForced(a.settings.MaxForcedExpirations)
	if err != nil {
		return fmt.Errorf("--max-forced-expirations %w", err)
	}
	err = a.register(
		a.joining.Reconciler,
		&launch.Reconciler{
			Client: c, Guard: a.deletions.Guard,
			Pods: a.pods, Cloud: a.joining.guard, Waiting: a.dependencies.Err, Events: a.events, Metrics: a.metrics, Log: log, Now: now,
		},
		&registration.Reconciler{
			Client: c, Live: live, Health: a.registrations, Events: a.events, Metrics: a.metrics, Log: log, Now: now,
			Hooks: []registration.Hook{&placementgroup.Hook{Cloud: a.aws.Instances}},
		},
		&initialization.Reconciler{
			Client: c, Events: a.events, Log: log, Now: now, GracePeriod: a.settings.StartupTaintGracePeriod,
			RepairStaleTaints: a.settings.RepairStaleTaints, Removals: a.joining.removals, Devices: !a.settings.IgnoreDRARequests,
		},
		&liveness.Reconciler{
			Client: c, Guard: a.deletions.Guard,
			Health: a.registrations, Events: a.events, LaunchTimeout: liveness.LaunchTimeout, Metrics: a.metrics, Log: log, Now: now,
		},
		&expiration.Reconciler{
			Client: c, Guard: a.deletions.Guard, Most: most, Keeper: a.pauses, Events: a.events, Metrics: a.metrics, Log: log, Now: now,
		},
		&hydration.Reconciler{Client: c, Now: now},
		&consistency.Reconciler{Client: c, Events: a.events, Log: log, Now: now, Devices: a.expectedDevices()},
		&tagging.Reconciler{Client: c, Cloud: a.aws.Instances, Log: log},
		&termination.ClaimReconciler{
			Client: c, Guard: a.deletions.Guard, Cloud: launched("nodeclaim.termination"), Events: a.events, Metrics: a.metrics, Log: log, Now: now,
			Pace: a.pace,
		},
	)
	return errors.Join(err, a.addHeldLoops(
		&adoption.Loop{
			Client: c, Cloud: instances("nodeclaim.adoption"), Events: a.events, Metrics: a.metrics, Log: log, Now: now, Recorder: a.recorder,
		},
		&garbagecollection.Instances{
			Client: c, Guard: a.deletions.Guard,
			Live: live, Cloud: launched("instance.garbagecollection"), Events: a.events, Metrics: a.metrics, Log: log, Now: now,
		},
		&garbagecollection.Claims{
			Client: c, Guard: a.deletions.Guard, Cloud: instances("nodeclaim.garbagecollection"), Events: a.events, Metrics: a.metrics, Log: log,
		},
		&reservation.Loop{Client: c, Guard: a.deletions.Guard, Cloud: instances("nodeclaim.reservation"), Metrics: a.metrics, Log: log},
	))
}

// joining watches instances become nodes, and holds back launches that would fail the same way.
type joining struct {
	*join.Reconciler

	guard *join.LaunchGuard
	// removals are recorded by the initialization of nodes.
	removals *cluster.TaintRemovals
	// classes has an item when node classes must be reconciled again, pools when NodePools must.
	classes, pools <-chan event.GenericEvent
	// changed queues an item for both.
	changed func()
}

// guarded describes what the guard stands in front of: node classes and launches.
type guarded struct {
	*nodeclass.Resolver
	*nodeclass.Resources
	*nodeclass.JoinChecks
	measuredLauncher
	measuredInstances
}

// expectedDevices are the devices that plans expect of the nodes of claims; nil while resource claims are ignored.
func (a *assembly) expectedDevices() func(context.Context, *karpv1.NodeClaim) ([]resourcev1.ResourceSliceSpec, error) {
	if a.settings.IgnoreDRARequests {
		return nil
	}
	return a.state.ExpectedDevices
}

func (a *assembly) newJoining() joining {
	classes, pools := make(chan event.GenericEvent, 1), make(chan event.GenericEvent, 1)
	changed := func() {
		for queue, o := range map[chan event.GenericEvent]client.Object{classes: &awsv1.EC2NodeClass{}, pools: &karpv1.NodePool{}} {
			select {
			case queue <- event.GenericEvent{Object: o}:
			default: // an item is queued already
			}
		}
	}
	launching := a.measure("nodeclaim.launch")
	breakers, removals := join.NewBreakers(time.Now, changed), cluster.NewTaintRemovals()
	return joining{
		Reconciler: &join.Reconciler{
			Client: a.mgr.GetClient(), Cloud: a.aws.Joins, Breakers: breakers,
			Times: join.NewTimes(a.settings.JoinGracePeriod), Changed: changed,
			Removals: removals, Timeout: liveness.RegistrationTimeout,
			Events: a.events, Metrics: a.metrics, Log: a.log, Now: time.Now,
		},
		guard: join.NewLaunchGuard(guarded{
			a.aws.NodeClasses, a.aws.Resources, a.aws.Joins, launching.launcher(a.aws.Launcher), launching.instances(a.aws.Instances),
		}, breakers, time.Now),

		removals: removals,
		classes:  classes,
		pools:    pools,
		changed:  changed,
	}
}
