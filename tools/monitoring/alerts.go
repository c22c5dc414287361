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

// eachAlert evaluates the alert rules that we ship over series at some times, which are in order, and calls f with each alert at each
// of them.
func eachAlert(ctx context.Context, store *series.Store, times []time.Time, f func(alerting.Alert, time.Time) error) error {
	groups, err := alerting.Parse(filepath.Join(chart, "rules", "dovetail.yaml"))
	if err != nil {
		return err
	}
	for _, g := range groups {
		for _, rule := range g.Rules {
			state := alerting.NewState(rule)
			for _, at := range times {
				alerts, err := state.Evaluate(ctx, store, at)
				if err != nil {
					return err
				}
				for _, a := range alerts {
					if err := f(a, at); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// everyStep are the times from one to another in steps, with both limits.
func everyStep(from, to time.Time, step time.Duration) []time.Time {
	var out []time.Time
	for at := from; !at.After(to); at = at.Add(step) {
		out = append(out, at)
	}
	return out
}

// addAlerts evaluates the alert rules over recorded series and adds the series ALERTS, as Prometheus does.
func addAlerts(ctx context.Context, store *series.Store, from, to time.Time) error {
	return eachAlert(ctx, store, everyStep(from, to, evaluation), func(a alerting.Alert, at time.Time) error {
		return store.Add(alertSeries(a), at, 1)
	})
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
