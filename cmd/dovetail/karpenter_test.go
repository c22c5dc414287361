package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/inventory"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// karpenter is testdata/karpenter-1.15.yaml: the names of Karpenter that its users refer to.
type karpenter struct {
	// Fields of the CustomResourceDefinitions, by kind.
	Fields map[string][]string `json:"fields"`
	// Settings are flags. Gates are feature gates with their defaults.
	Settings        []string `json:"settings"`
	Gates, AWSGates map[string]bool
	ChartValues     []string `json:"chartValues"`

	Labels, Annotations, Taints, Events []string
	// Conditions by kind.
	Conditions map[string][]string
	// Metrics, and LibraryMetrics, which come from the libraries of both.
	Metrics, LibraryMetrics map[string]karpenterMetric
	// Behaviors and Cases hold what Karpenter 1.15 does otherwise than before.
	Behaviors, Cases []behavior
	// Differences holds what we lack of it, or have otherwise; Additions are names in its domain that it lacks.
	Differences, Additions []difference
}

// karpenterMetric describes a metric. Stability is stable, beta, alpha or deprecated.
type karpenterMetric struct {
	Type, Stability string
	Labels          []string
}

// difference is a row of docs/compatibility.md.
type difference struct{ Sort, Name, Why string }

// behavior is a rule of Karpenter. It has either a test of ours, as directory and function, or a reason why it does not hold here.
type behavior struct{ Rule, Test, Why string }

// Sorts of names.
const (
	sortField, sortSetting, sortGate, sortValue          = "field", "setting", "feature gate", "chart value"
	sortLabel, sortAnnotation, sortTaint, sortCondition  = "label", "annotation", "taint", "condition"
	sortEvent, sortMetric, sortMetricLabels, placeholder = "event", "metric", "labels of metric", "NODE"
)

func readKarpenter(t *testing.T) karpenter {
	t.Helper()
	text, err := os.ReadFile("testdata/karpenter-1.15.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k karpenter
	if err := yaml.UnmarshalStrict(text, &k); err != nil {
		t.Fatal(err)
	}
	return k
}

// names are the names of one sort: Karpenter's, and ours. Additions states whether what only we have needs a row.
type names struct {
	sort         string
	theirs, ours []string
	additions    bool
}

// Each name of Karpenter is one of ours, or a listed difference; each name of ours in its domain is one of Karpenter's, or a listed
// addition. A row that is not true any more is an error, too.
func TestNamesAreKarpenters(t *testing.T) {
	k := readKarpenter(t)
	constants := stringConstants(t, "../../api")
	metricsOfOurs := ourMetrics(t)
	all := []names{
		{sortField, flatten(k.Fields), ourFields(t), true},
		{sortSetting, k.Settings, ourSettings(), true},
		{sortGate, slices.Concat(keys(k.Gates), keys(k.AWSGates)), settings.KnownGates(), true},
		{sortValue, k.ChartValues, ourChartValues(t), true},
		{sortLabel, k.Labels, ourKeys(constants, "Label"), true},
		{sortAnnotation, k.Annotations, ourKeys(constants, "Annotation"), true},
		{sortTaint, k.Taints, ourKeys(constants, "TaintKey"), true},
		{sortCondition, unique(flatten(k.Conditions, "")), ourConditions(constants), true},
		{sortEvent, k.Events, stringLiterals(t, "../../internal", "../../api"), false},
		{sortMetric, keys(k.Metrics), keys(metricsOfOurs), true},
		{sortMetricLabels, commonMetrics(k.Metrics, metricsOfOurs), sameLabels(k.Metrics, metricsOfOurs), false},
	}
	for _, n := range all {
		compareNames(t, n, rows(k.Differences, n.sort), rows(k.Additions, n.sort))
	}
	for gate, on := range k.Gates {
		if got := (settings.Settings{}).Gate(gate); got != on {
			t.Errorf("feature gate %s is %v by default, Karpenter's is %v", gate, got, on)
		}
	}
}

// Types are Karpenter's, too. The libraries have the labels that its pages have.
func TestTypesOfMetricsAreKarpenters(t *testing.T) {
	k := readKarpenter(t)
	for _, m := range allMetrics(t, prometheus.NewRegistry()) {
		if their, ok := k.Metrics[m.Name]; ok && their.Type != m.Type {
			t.Errorf("%s is a %s, Karpenter's is a %s", m.Name, m.Type, their.Type)
		}
	}
	ofLibraries := map[string]inventory.Metric{}
	for _, m := range libraryMetrics(t) {
		ofLibraries[m.Name] = m
	}
	for name, their := range k.LibraryMetrics {
		ours := ofLibraries[name]
		slices.Sort(their.Labels)
		if ours.Type != their.Type || !slices.Equal(ours.Labels, their.Labels) {
			t.Errorf("%s is %+v, Karpenter's is %+v", name, ours, their)
		}
	}
}

func compareNames(t *testing.T, n names, differences, additions map[string]bool) {
	t.Helper()
	if len(n.theirs) == 0 || len(n.ours) == 0 {
		t.Errorf("%s: %d names of Karpenter, %d of ours", n.sort, len(n.theirs), len(n.ours))
	}
	theirs, ours := set(n.theirs), set(n.ours)
	for _, name := range slices.Sorted(maps.Keys(theirs)) {
		switch {
		case !ours[name] && !hasRow(differences, name):
			t.Errorf("%s %s of Karpenter is missing, and no row of differences says why", n.sort, name)
		case ours[name] && hasRow(differences, name):
			t.Errorf("%s %s is as Karpenter's: remove its row from differences", n.sort, name)
		}
	}
	for name := range differences {
		if !slices.ContainsFunc(n.theirs, func(their string) bool { return hasRow(map[string]bool{name: true}, their) }) {
			t.Errorf("%s %s has a row of differences, but Karpenter has none of that name", n.sort, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if n.additions && !theirs[name] && !hasRow(additions, name) {
			t.Errorf("%s %s is not Karpenter's, and no row of additions says what it is for", n.sort, name)
		}
	}
	for name := range additions {
		if !slices.ContainsFunc(n.ours, func(o string) bool { return hasRow(map[string]bool{name: true}, o) && !theirs[o] }) {
			t.Errorf("%s %s has a row of additions, but there is none", n.sort, name)
		}
	}
}

// hasRow reports whether a row has a name, by itself or with all that begin like it ("a.*").
func hasRow(rows map[string]bool, name string) bool {
	for row := range rows {
		if prefix, ok := strings.CutSuffix(row, "*"); name == row || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// The page has a row for each difference, each addition and each behavior that is missing, in the words and the order of the table.
func TestNamesInDocumentation(t *testing.T) {
	k := readKarpenter(t)
	page, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string][]string{}
	add := func(heading, format string, cells ...any) {
		tables[heading] = append(tables[heading], fmt.Sprintf(format, cells...))
	}
	for heading, list := range map[string][]difference{"Names of Karpenter 1.15 that are missing": k.Differences, "Additional names": k.Additions} {
		for _, d := range list {
			add(heading, "| %s | `%s` | %s |", d.Sort, d.Name, d.Why)
		}
	}
	for _, b := range slices.Concat(k.Behaviors, k.Cases) {
		if b.Why != "" {
			add("Behavior of Karpenter 1.15 that is missing", "| %s | %s |", strings.TrimLeft(b.Rule, "0123456789: "), b.Why)
		}
	}
	for heading, want := range tables {
		_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
		if !found {
			t.Errorf("the page has no section %q", heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var got []string
		for line := range strings.Lines(section) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| Sort ") && !strings.HasPrefix(line, "| What ") {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-table +page):\n%s\nthe rows of the table:\n%s", heading, diff, strings.Join(want, "\n"))
		}
	}
}

func rows(list []difference, sort string) map[string]bool {
	out := map[string]bool{}
	for _, d := range list {
		if d.Sort == sort {
			out[d.Name] = true
		}
	}
	return out
}

func set(list []string) map[string]bool {
	out := map[string]bool{}
	for _, s := range list {
		out[s] = true
	}
	return out
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func unique(list []string) []string { return keys(set(list)) }

// flatten joins keys and values: "NodePool spec.weight". With a separator of its own, an empty one, it drops the keys.
func flatten(m map[string][]string, separator ...string) []string {
	var out []string
	for _, key := range keys(m) {
		for _, value := range m[key] {
			if len(separator) > 0 {
				out = append(out, value)
			} else {
				out = append(out, key+" "+value)
			}
		}
	}
	return out
}

// Each rule names a test that exists, or states why it does not hold.
func TestBehaviorsOfKarpenterAreTested(t *testing.T) {
	k := readKarpenter(t)
	for _, b := range slices.Concat(k.Behaviors, k.Cases) {
		if (b.Test == "") == (b.Why == "") {
			t.Errorf("%s: want either a test or a reason", b.Rule)
		}
		if b.Test == "" {
			continue
		}
		dir, name, _ := strings.Cut(b.Test, " ")
		files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T")
		}) {
			t.Errorf("%s: there is no test %s in %s", b.Rule, name, dir)
		}
	}
	if len(k.Behaviors) < 20 || len(k.Cases) != 22 {
		t.Errorf("%d behaviors and %d cases", len(k.Behaviors), len(k.Cases))
	}
}
