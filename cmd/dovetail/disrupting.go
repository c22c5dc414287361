package main

import (
	"errors"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/disruption"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/drift"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// addDisruption adds what finds nodes that are not worth their price or out of date, and what carries their end through.
func (a *assembly) addDisruption(ec2 *aws.Cloud, state *cluster.State) error {
	c, live, log, now := a.mgr.GetClient(), a.mgr.GetAPIReader(), a.log, time.Now
	pauses := breaker.New(c, now)
	queue := &disruption.Queue{
		Client: c, Live: live, State: state, Breaker: pauses, Events: a.events, Metrics: a.metrics, Log: log, Now: now, Jitter: rand.Float64,
	}
	marks := &drift.Reconciler{Client: c, Cloud: ec2, Labels: labels(), Log: log, Now: now}
	loop := &disruption.Loop{
		Client: c, Live: live, State: state, Queue: queue, Labels: labels(), Breaker: pauses,
		FixedPools:    a.settings.Gate(settings.GateStaticCapacity),
		Consolidation: consolidate.Settings{SpotToSpot: a.settings.Gate(settings.GateSpotToSpot)},
		Events:        a.events, Metrics: a.metrics, Log: log, Now: now, ID: func() string { return string(uuid.NewUUID()) }, Settle: disruption.SettleTime,
		Quarantine: a.leftOut, Panics: a.panics,
	}
	return errors.Join(queue.Register(a.mgr), marks.Register(a.mgr), loop.Register(a.mgr))
}
