package main

import (
	"time"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dovetail-k8s/dovetail/internal/controller/breaker"
)

// health are the reconcilers that look after nodes which are not well.
func (a *assembly) health() ([]registrar, error) {
	paused, err := breaker.NewMetrics(ctrlmetrics.Registry)
	if err != nil {
		return nil, err
	}
	return []registrar{
		&breaker.Reconciler{
			Client: a.mgr.GetClient(), Threshold: a.settings.MaxFailedReplacements, Events: a.events, Metrics: paused, Log: a.log, Now: time.Now,
		},
	}, nil
}
