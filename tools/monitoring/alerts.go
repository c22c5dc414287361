package main

import (
	"context"
	"maps"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/alerting"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// addAlerts evaluates the alert rules over recorded series and adds the series ALERTS, as Prometheus does.
func addAlerts(ctx context.Context, store *series.Store, from, to time.Time) error {
	groups, err := alerting.Parse(filepath.Join(chart, "rules", "dovetail.yaml"))
	if err != nil {
		return err
	}
	for _, g := range groups {
		for _, rule := range g.Rules {
			state := alerting.NewState(rule)
			for at := from; !at.After(to); at = at.Add(evaluation) {
				alerts, err := state.Evaluate(ctx, store, at)
				if err != nil {
					return err
				}
				for _, a := range alerts {
					if err := store.Add(alertSeries(a), at, 1); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// alertSeries are the labels of the series of an alert.
func alertSeries(a alerting.Alert) labels.Labels {
	of := maps.Clone(a.Labels)
	of[labels.MetricName], of["alertstate"] = "ALERTS", "pending"
	if a.Firing {
		of["alertstate"] = "firing"
	}
	return labels.FromMap(of)
}
