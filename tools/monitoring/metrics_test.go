package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// ofTarget are labels that Prometheus adds to every series.
var ofTarget = []string{"cluster", "namespace", "job", "instance", "pod", "exported_namespace"}

// ofNodes are the labels of the metrics of nodes, which have one for each well-known label, as far as queries use them.
var ofNodes = []string{"arch", "capacity_type", "instance_type", "nodepool", "zone", "region", "node_name", "phase", "managed"}

// synthetic are metrics that Prometheus itself makes.
var synthetic = map[string][]string{"ALERTS": {"alertname", "alertstate", "severity"}, "up": nil}

// ofProcess are metrics of Prometheus' Go library that the page of metrics does not list one by one.
var ofProcess = []string{"go_goroutines", "process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes"}

// metricRow is a row of the tables in docs/metrics.md, which is generated from the code: name, type, labels.
var metricRow = regexp.MustCompile("(?m)^\\| `([a-z_0-9]+)` \\| [a-z]+ \\| ([^|]*) \\|")

// exported are the labels of each metric that the controller exports, by the metric's name.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(page), -1) {
		labels := []string{}
		for cell := range strings.SplitSeq(row[2], ", ") {
			switch name := strings.Trim(cell, "`"); name {
			case "–":
			case "*node labels*":
				labels = append(labels, ofNodes...)
			default:
				labels = append(labels, name)
			}
		}
		out[row[1]] = labels
	}
	if len(out) < 150 {
		t.Fatalf("docs/metrics.md has only %d metrics", len(out))
	}
	for _, name := range ofProcess {
		out[name] = nil
	}
	return out
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// base is the metric that a series belongs to: that of a histogram or summary has several.
func base(name string, known map[string][]string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if of, found := strings.CutSuffix(name, suffix); found {
			if _, is := known[of]; is {
				return of
			}
		}
	}
	return name
}

func TestQueriesUseExportedMetricsAndLabels(t *testing.T) {
	known := exported(t)
	maps.Copy(known, synthetic)
	for _, q := range shippedQueries(t) {
		for _, problem := range unknownNames(q.expr, known) {
			t.Errorf("%s: %s", q.where, problem)
		}
	}
}

// unknownNames are the metrics and labels of an expression that no series can have.
func unknownNames(expr parser.Expr, known map[string][]string) []string {
	var out []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			of, exists := known[base(n.Name, known)]
			if !exists {
				out = append(out, "no metric has the name "+n.Name)
				return nil
			}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && !hasLabel(of, m.Name) {
					out = append(out, fmt.Sprintf("%s has no label %s", n.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			if missing := notBelow(n.Expr, n.Grouping, known); !n.Without && len(missing) > 0 {
				out = append(out, fmt.Sprintf("no metric in %s has the labels %v", n.Expr, missing))
			}
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				for _, side := range []parser.Expr{n.LHS, n.RHS} {
					if missing := notBelow(side, n.VectorMatching.MatchingLabels, known); len(missing) > 0 {
						out = append(out, fmt.Sprintf("no metric in %s has the labels %v", side, missing))
					}
				}
			}
		}
		return nil
	})
	return out
}

// hasLabel reports whether a metric with these labels has another, also as part of a histogram or with the labels of its target.
func hasLabel(of []string, name string) bool {
	return name == "le" || name == "quantile" || slices.Contains(ofTarget, name) || slices.Contains(of, name)
}

// notBelow are the labels that neither a metric in an expression has nor label_replace makes.
func notBelow(expr parser.Expr, names []string, known map[string][]string) []string {
	missing := slices.Clone(names)
	drop := func(has func(string) bool) { missing = slices.DeleteFunc(missing, has) }
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			drop(func(name string) bool { return hasLabel(known[base(n.Name, known)], name) })
		case *parser.Call:
			if n.Func.Name == "label_replace" {
				drop(func(name string) bool { return name == n.Args[1].(*parser.StringLiteral).Val })
			}
		}
		return nil
	})
	return missing
}

// Every metric is on a dashboard or in a rule, or there is a reason why not.
func TestEveryMetricIsUsed(t *testing.T) {
	known := exported(t)
	used := map[string]bool{}
	for _, q := range shippedQueries(t) {
		parser.Inspect(q.expr, func(n parser.Node, _ []parser.Node) error {
			if v, is := n.(*parser.VectorSelector); is {
				used[base(v.Name, known)] = true
			}
			return nil
		})
	}
	var diagnostic map[string]string
	readYAML(t, "testdata/diagnostic.yaml", &diagnostic)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		why, listed := diagnostic[name]
		switch {
		case !used[name] && !listed:
			t.Errorf("no panel and no rule uses %s: add one, or a reason to testdata/diagnostic.yaml", name)
		case used[name] && listed:
			t.Errorf("%s is used, and in testdata/diagnostic.yaml", name)
		case listed && len(why) < 10:
			t.Errorf("testdata/diagnostic.yaml has no reason for %s", name)
		}
	}
	for name := range diagnostic {
		if _, exists := known[name]; !exists {
			t.Errorf("testdata/diagnostic.yaml has %s, which is not exported", name)
		}
	}
}

// The checks above find a wrong name.
func TestUnknownNamesAreFound(t *testing.T) {
	known := map[string][]string{"nodes": {"zone"}, "took_seconds": {"controller"}}
	for text, want := range map[string]int{
		`sum by (zone) (nodes{zone="a", cluster="b"})`:                                     0,
		`histogram_quantile(0.9, sum by (le, controller) (rate(took_seconds_bucket[5m])))`: 0,
		`sum by (pool) (label_replace(nodes, "pool", "$1", "zone", "(.*)"))`:               0,
		`node`:                                1,
		`nodes{zon="a"}`:                      1,
		`sum by (pool) (nodes)`:               1,
		`nodes / on (controller) nodes`:       2,
		`nodes unless on (zone) took_seconds`: 1,
	} {
		expr, err := series.Parser().ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := unknownNames(expr, known); len(got) != want {
			t.Errorf("%s: %q, want %d problems", text, got, want)
		}
	}
}
