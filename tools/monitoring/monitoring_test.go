package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/alerting"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/dashboards"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// query is an expression that we ship, with where it is.
type query struct {
	where string
	expr  parser.Expr
}

// shippedQueries are the queries of all dashboards and rules, parsed by Prometheus' parser.
func shippedQueries(t *testing.T) []query {
	t.Helper()
	var out []query
	add := func(where, text string) {
		expr, err := series.Parser().ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v\n%s", where, err, text)
			return
		}
		out = append(out, query{where, expr})
	}
	for _, d := range dashboards.All() {
		for _, p := range d.Panels() {
			for _, q := range p.Queries {
				add(d.Title+", "+p.Title, grafana.Interpolate(q.Expr, time.Minute, time.Hour, 15*time.Second))
			}
		}
	}
	groups, err := alerting.Parse(filepath.Join(chart, "rules", "dovetail.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, r := range g.Rules {
			add(r.Alert, r.Expr)
		}
	}
	return out
}

func TestQueriesParse(t *testing.T) {
	if n := len(shippedQueries(t)); n < 100 {
		t.Errorf("%d queries; the dashboards and rules have more", n)
	}
}

func TestDashboardsOfTheChartAreFresh(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(files(t, dir), files(t, filepath.Join(chart, "dashboards"))); diff != "" {
		t.Errorf("run make dashboards (-generated +committed)\n%s", diff)
	}
}

// files are the contents of the files of a directory, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range found {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = string(text)
	}
	return out
}
