package main

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/controller/interruption"
	"github.com/dovetail-k8s/dovetail/internal/controller/node/repair"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodepool/breaker"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// health are the reconcilers that look after nodes which are not well.
func (a *assembly) health() ([]registrar, error) {
	paused, err := breaker.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	out := []registrar{
		&breaker.Reconciler{
			Client: a.mgr.GetClient(), Threshold: a.settings.MaxFailedReplacements, Events: a.events, Metrics: paused, Log: a.log, Now: time.Now,
		},
	}
	if a.settings.Gate(settings.GateNodeRepair) {
		repairs, err := repair.NewMetrics(ctrlmetrics.Registry)
		if err != nil {
			return nil, err
		}
		out = append(out, &repair.Reconciler{
			Client: a.mgr.GetClient(), Policies: aws.RepairPolicies(), Events: a.events, Metrics: a.metrics, Repairs: repairs, Log: a.log, Now: time.Now,
			Settle: repair.SettleTime,
		})
	}
	return out, nil
}

// interruption follows what AWS says of instances, on the leader only.
func (a *assembly) interruption(ec2 *aws.Cloud) ([]manager.Runnable, error) {
	heard, err := interruption.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	c, log, now := a.mgr.GetClient(), a.log, time.Now
	actor := &interruption.Actor{Client: c, Live: a.mgr.GetAPIReader(), Cloud: ec2, Events: a.events, Metrics: a.metrics, Log: log, Now: now}
	standing := &interruption.Standing{Client: c, Events: a.events, Log: log, Now: now}
	queue := &interruption.Queue{Actor: actor, Standing: standing, Metrics: heard, Log: log, Now: now}
	if name := a.settings.InterruptionQueue; name != "" {
		queue.Source = ec2.InterruptionQueue(name)
	}
	return []manager.Runnable{queue, &interruption.Status{Clinic: ec2, Actor: actor, Standing: standing, Metrics: heard, Log: log}}, nil
}
