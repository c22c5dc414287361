package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/dashboards"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// recorded are the metrics of the session in the lab that docs/dashboards.md shows, with a scrape every 80 s. At its end an instance
// has not joined, startup taints stay on nodes, and a volume stays on a node that terminates.
func recorded(t *testing.T) *series.Store {
	t.Helper()
	store, err := load("testdata/lab.om.gz")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// The failures that the session has fire, and nothing else does.
func TestAlertsOfASession(t *testing.T) {
	store := recorded(t)
	from, to := store.Span()
	if err := addAlerts(t.Context(), store, from, to); err != nil {
		t.Fatal(err)
	}
	found, err := store.Instant(t.Context(), `group by (alertname) (ALERTS{alertstate="firing"})`, to)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range found {
		got = append(got, s.Metric.Get("alertname"))
	}
	slices.Sort(got)
	want := []string{"DovetailNodeNotJoining", "DovetailStartupTaintStuck", "DovetailVolumesNotDetached"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Every number on top of the dashboards has a value, but for those of calls and plans, which the record leaves out.
func TestNumbersOfASession(t *testing.T) {
	store := recorded(t)
	from, to := store.Span()
	for _, d := range dashboards.All() {
		for _, p := range d.Rows[0].Panels {
			expr := grafana.Interpolate(p.Queries[0].Expr, store.Interval(), to.Sub(from), store.Interval())
			found, err := store.Instant(t.Context(), expr, to)
			if err != nil || len(found) != 1 {
				t.Errorf("%s, %s: %v, %v", d.Title, p.Title, found, err)
			}
		}
	}
}

// Queries as Karpenter's dashboards have them, of each of its metrics that the session has series of, have results with its labels.
func TestKarpentersQueries(t *testing.T) {
	store, known := recorded(t), exported(t)
	_, to := store.Span()
	n := 0
	for _, name := range store.Names() {
		metric := base(name, known)
		labels, exists := known[metric]
		if !exists || !strings.HasPrefix(name, "karpenter_") || strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") &&
			metric != name {
			continue
		}
		labels = slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == "namespace" }) // of the target
		found, err := store.Instant(t.Context(), karpenterQuery(name, labels), to.Add(-10*time.Second))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		has := store.Labels(name)
		for _, l := range labels {
			if !has[l] {
				t.Errorf("no series of %s has the label %s, only %v", name, l, slices.Sorted(maps.Keys(has)))
			}
		}
		if len(found) > 0 { // pods that wait have no series once they are bound
			n++
		}
	}
	if n < 40 {
		t.Errorf("only %d metrics of Karpenter have results", n)
	}
}

// karpenterQuery is the usual query of a metric: a rate by labels, a quantile, or a sum.
func karpenterQuery(name string, labels []string) string {
	by := strings.Join(labels, ", ")
	switch {
	case strings.HasSuffix(name, "_bucket"):
		return fmt.Sprintf("histogram_quantile(0.99, sum by (%s) (rate(%s[5m])))", strings.Join(append(labels, "le"), ", "), name)
	case strings.HasSuffix(name, "_total") && name != "karpenter_nodepools_cost_total":
		return fmt.Sprintf("sum by (%s) (rate(%s[5m]))", by, name)
	}
	return fmt.Sprintf("sum by (%s) (%s)", by, name)
}
