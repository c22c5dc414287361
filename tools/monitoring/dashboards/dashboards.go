// Package dashboards holds Dovetail's Grafana dashboards. The files in deploy/chart/dovetail/dashboards are generated from it.
package dashboards

import (
	"fmt"
	"strings"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
)

// All are the dashboards by the names of their files, in the order of their links.
func All() []grafana.Dashboard {
	out := []grafana.Dashboard{overview(), capacity(), disruption(), performance(), failures()}
	for i := range out {
		d := &out[i]
		d.Variables = variables()
		for _, other := range out {
			if other.UID != d.UID {
				d.Links = append(d.Links, grafana.Link{Title: strings.TrimPrefix(other.Title, prefix), UID: other.UID})
			}
		}
	}
	return out
}

// File is the name of a dashboard's file.
func File(d grafana.Dashboard) string { return d.UID + ".json" }

// prefix is the beginning of all titles.
const prefix = "Dovetail / "

// variables are those of Karpenter's dashboards, with the labels that Prometheus adds. A value of all also matches series without the
// label: a single Prometheus adds no label cluster.
func variables() []grafana.Variable {
	return []grafana.Variable{
		{Name: "datasource", Label: "Data source"},
		{Name: "cluster", Label: "Cluster", Query: "label_values(karpenter_build_info, cluster)"},
		{Name: "job", Label: "Job", Query: `label_values(karpenter_build_info{cluster=~"$cluster"}, job)`},
		{
			Name: "nodepool", Label: "NodePool",
			Query: `label_values(karpenter_nodepools_allowed_disruptions{cluster=~"$cluster", job=~"$job"}, nodepool)`,
		},
	}
}

// Matchers of the labels that metrics have for their NodePool.
const (
	inPool      = `nodepool=~"$nodepool"`
	inClaimPool = `karpenter_sh_nodepool=~"$nodepool"`
)

// of selects the series of a metric that the variables and the matchers select.
func of(metric string, matchers ...string) string {
	return metric + "{" + strings.Join(append([]string{`cluster=~"$cluster"`, `job=~"$job"`}, matchers...), ", ") + "}"
}

// perSecond is the rate of a counter.
func perSecond(metric string, matchers ...string) string {
	return "rate(" + of(metric, matchers...) + "[$__rate_interval])"
}

// events is how much a counter has grown between two points of a panel with bars.
func events(by, metric string, matchers ...string) string {
	return fmt.Sprintf("sum by (%s) (increase(%s[$__rate_interval]))", by, of(metric, matchers...))
}

// firstEvents are events of a counter with labels that nobody knows beforehand: its first value is an event, too, which increase does
// not count.
func firstEvents(by, metric string) string {
	return fmt.Sprintf("sum by (%s) (increase(%s[$__rate_interval]) > 0 or (%[2]s unless %[2]s offset $__rate_interval))", by, of(metric))
}

// total is how much a counter has grown over the time that the page shows. It is 0 without a series.
func total(metric string, matchers ...string) string {
	return "sum(increase(" + of(metric, matchers...) + "[$__range])) or vector(0)"
}

// quantile is a quantile of a histogram over time, by labels.
func quantile(q, by, metric string, matchers ...string) string {
	labels := "le"
	if by != "" {
		labels += ", " + by
	}
	return fmt.Sprintf("histogram_quantile(%s, sum by (%s) (%s))", q, labels, perSecond(metric+"_bucket", matchers...))
}

// typical is a quantile of a histogram over the time that the page shows.
func typical(q, metric string, matchers ...string) string {
	return fmt.Sprintf("histogram_quantile(%s, sum by (le) (increase(%s[$__range])))", q, of(metric+"_bucket", matchers...))
}

// Widths of panels, in columns.
const (
	full    = 24
	half    = 12
	third   = 8
	quarter = 6
	sixth   = 4
)

// Heights of rows, in units of 30 pixels.
const (
	statHeight  = 4
	panelHeight = 8
)

// Colors of states. They mean the same in every panel.
const (
	good    = "green"
	warning = "orange"
	bad     = "red"
	plain   = "blue"
)

// capacityTypes have the same colors in every panel.
var capacityTypes = []grafana.Color{
	{Series: "on-demand", Color: "blue"}, {Series: "spot", Color: "yellow"}, {Series: "reserved", Color: "purple"},
}

// noneIsGood colors a count of faults.
var noneIsGood = []grafana.Step{{Color: good}, {From: 1, Color: bad}}

// fewIsGood colors a count that is normal for a while.
var fewIsGood = []grafana.Step{{Color: good}, {From: 1, Color: warning}}

// neutral colors a number that is neither good nor bad.
var neutral = []grafana.Step{{Color: plain}}

// value is a pointer to a number, for the limits of axes.
func value[T any](v T) *T { return &v }

// stat is a number on top of a page.
func stat(title, expr string, unit grafana.Unit, description string) grafana.Panel {
	return grafana.Panel{
		Kind: grafana.Stat, Title: title, Unit: unit, Width: sixth, Steps: neutral, Description: description,
		Queries: []grafana.Query{{Expr: expr}},
	}
}

// number is a stat of a count.
func number(title, expr string, steps []grafana.Step, description string) grafana.Panel {
	p := stat(title, expr, grafana.Count, description)
	p.Steps, p.Decimals = steps, value(0)
	return p
}

// over is a panel over time with one query.
func over(title string, unit grafana.Unit, q grafana.Query, description string) grafana.Panel {
	return grafana.Panel{
		Kind: grafana.TimeSeries, Title: title, Unit: unit, Width: third, Description: description,
		Queries: []grafana.Query{q}, Min: value(0.0),
	}
}

// bars is a panel with the number of events over time.
func bars(title string, q grafana.Query, description string) grafana.Panel {
	p := over(title, grafana.Count, q, description)
	p.Bars = true
	return p
}

// as changes a panel.
func as(p grafana.Panel, change ...func(*grafana.Panel)) grafana.Panel {
	for _, c := range change {
		c(&p)
	}
	return p
}

func wide(columns int) func(*grafana.Panel) { return func(p *grafana.Panel) { p.Width = columns } }

func stacked(p *grafana.Panel) { p.Stacked = true }

func colored(c []grafana.Color) func(*grafana.Panel) { return func(p *grafana.Panel) { p.Colors = c } }

// with adds queries.
func with(q ...grafana.Query) func(*grafana.Panel) {
	return func(p *grafana.Panel) { p.Queries = append(p.Queries[:len(p.Queries):len(p.Queries)], q...) }
}

// empty is shown when a panel has no series, which is good for lists of faults.
func empty(text string) func(*grafana.Panel) { return func(p *grafana.Panel) { p.Empty = text } }

// recent is a quantile of a histogram of rare events: over ten minutes, so that single ones form a line.
func recent(q, by, metric string, matchers ...string) string {
	return strings.ReplaceAll(quantile(q, by, metric, matchers...), "[$__rate_interval]", "[10m]")
}

// percentiles are two lines of a histogram of rare events: what is typical, and the slowest one of a hundred.
func percentiles(title, metric, description string, matchers ...string) grafana.Panel {
	return as(over(title, grafana.Seconds, grafana.Query{Expr: recent("0.5", "", metric, matchers...), Legend: "p50"}, description),
		with(grafana.Query{Expr: recent("0.99", "", metric, matchers...), Legend: "p99"}),
		colored([]grafana.Color{{Series: "p50", Color: "blue"}, {Series: "p99", Color: "orange"}}))
}

// ranking is a bar for each of the eight largest current values, where lines would be too many.
func ranking(title string, unit grafana.Unit, q grafana.Query, description string) grafana.Panel {
	q.Expr = "topk(8, " + q.Expr + ")"
	return grafana.Panel{
		Kind: grafana.BarGauge, Title: title, Unit: unit, Width: third, Min: value(0.0), Steps: neutral, Description: description,
		Queries: []grafana.Query{q},
	}
}

// typicalBy is a quantile of a histogram over the time that the page shows, by labels, where there is one.
func typicalBy(q, by, metric string, matchers ...string) string {
	return fmt.Sprintf("(histogram_quantile(%s, sum by (le, %s) (rate(%s[$__range]))) > 0)", q, by, of(metric+"_bucket", matchers...))
}
