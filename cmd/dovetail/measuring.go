package main

import (
	"errors"
	"time"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/clusterstate"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/offering"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/podlatency"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// newDecisions remembers what plans say of pods, for those who measure it; nil if nobody does.
func (a *assembly) newDecisions() *podlatency.Decisions {
	if a.settings.DisableClusterStateObservability {
		return nil
	}
	return podlatency.NewDecisions(a.metrics, time.Now)
}

// addMeasuring adds what only looks. A metric for each pod is too much for some: it can be switched off.
func (a *assembly) addMeasuring(ec2 *aws.Cloud, state *cluster.State) error {
	offerings := offering.NewCollector()
	market := &offering.Loop{
		Client: a.mgr.GetClient(), Cloud: ec2, Reserved: a.settings.Gate(settings.GateReservedCapacity), Collector: offerings, Events: a.events, Log: a.log,
	}
	if a.overlays != nil {
		market.Lay = a.overlays.Lay
	}
	err := errors.Join(
		a.mgr.Add(&clusterstate.Watch{State: state, Metrics: a.metrics, Log: a.log, Now: time.Now}),
		a.mgr.Add(market), ctrlmetrics.Registry.Register(offerings),
	)
	if a.decisions == nil {
		return err
	}
	c := a.mgr.GetClient()
	pods := &podlatency.Pods{Client: c, Decisions: a.decisions, Metrics: a.metrics, Now: time.Now}
	collector := podlatency.NewCollector(c, a.decisions, time.Now, a.log)
	return errors.Join(err, pods.Register(a.mgr), ctrlmetrics.Registry.Register(collector), a.mgr.Add(collector))
}
