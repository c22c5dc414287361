// Package alerting evaluates alert rules over time series, as Prometheus and promtool do.
//
// Prometheus' package rules would do, but it depends on the service discovery and the SDKs of three clouds. Expressions, templates and
// the format of the rules are Prometheus' own; here is only the state of an alert: how long its expression has been true.
package alerting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// Parse reads a file of rule groups with the checks that Prometheus makes when it loads it.
func Parse(file string) ([]rulefmt.RuleGroup, error) {
	groups, errs := rulefmt.ParseFile(file, false, model.LegacyValidation, series.Parser(), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return groups.Groups, nil
}

// Alert is one alert that fires, or that waits for its duration.
type Alert struct {
	Name                string
	Labels, Annotations map[string]string
	Firing              bool
}

// State is what Prometheus remembers of a rule between evaluations.
type State struct {
	rule rulefmt.Rule
	// since is when each alert of the rule became active, by its labels.
	since map[string]time.Time
}

// NewState begins the evaluation of a rule.
func NewState(rule rulefmt.Rule) *State { return &State{rule: rule, since: map[string]time.Time{}} }

// Evaluate evaluates the rule at a time. Times come in their order.
//
// Rules with keep_firing_for are an error, since no rule of ours has it.
func (s *State) Evaluate(ctx context.Context, store *series.Store, at time.Time) ([]Alert, error) {
	if s.rule.KeepFiringFor != 0 {
		return nil, fmt.Errorf("rule %s has keep_firing_for", s.rule.Alert)
	}
	found, err := store.Instant(ctx, s.rule.Expr, at)
	if err != nil {
		return nil, fmt.Errorf("rule %s: %w", s.rule.Alert, err)
	}
	since := map[string]time.Time{}
	var out []Alert
	for _, sample := range found {
		a, err := s.alert(ctx, store, sample, at)
		if err != nil {
			return nil, err
		}
		key := labels.FromMap(a.Labels).String()
		if _, twice := since[key]; twice {
			return nil, fmt.Errorf("rule %s: two alerts have the labels %s", s.rule.Alert, key)
		}
		begin, active := s.since[key]
		if !active {
			begin = at
		}
		since[key] = begin
		a.Firing = at.Sub(begin) >= time.Duration(s.rule.For)
		out = append(out, a)
	}
	s.since = since
	return out, nil
}

// alert fills the labels and annotations of an alert.
func (s *State) alert(ctx context.Context, store *series.Store, sample promql.Sample, at time.Time) (Alert, error) {
	own := sample.Metric.Map()
	delete(own, labels.MetricName)
	data := template.AlertTemplateData(own, nil, "", sample)
	expand := func(text string) (string, error) {
		query := func(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
			return store.Instant(ctx, expr, at)
		}
		const variables = "{{$labels := .Labels}}{{$value := .Value}}" // as Prometheus defines them
		return template.NewTemplateExpander(
			ctx, variables+text, s.rule.Alert, data, model.TimeFromUnixNano(at.UnixNano()), query, &url.URL{}, nil,
		).Expand()
	}
	out := Alert{Name: s.rule.Alert, Labels: own, Annotations: map[string]string{}}
	added, err := expandAll(s.rule.Labels, expand)
	if err != nil {
		return out, err
	}
	maps.Copy(out.Labels, added)
	out.Labels["alertname"] = s.rule.Alert
	out.Annotations, err = expandAll(s.rule.Annotations, expand)
	return out, err
}

func expandAll(texts map[string]string, expand func(string) (string, error)) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text, err := expand(texts[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out[name] = text
	}
	return out, nil
}
