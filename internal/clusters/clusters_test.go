package clusters_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/clusters"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

func TestOneClusterStopsNoOther(t *testing.T) {
	var now, most atomic.Int32
	results := clusters.Each(t.Context(), []string{"a", "b", "c", "d", "e"}, 2, func(_ context.Context, name string) (*string, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		if name == "b" {
			return &name, errors.New("no route to host")
		}
		return &name, nil
	})
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		r := results[i]
		if failed := name == "b"; r.Context != name || failed != (r.Report == nil) || failed != (r.Error == "no route to host") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if most.Load() > 2 || clusters.Failed(results) != 1 {
		t.Errorf("%d at once, %d failed", most.Load(), clusters.Failed(results))
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, r := range clusters.Each(ended, []string{"a"}, 1, func(context.Context, string) (*string, error) {
		t.Error("a cluster is examined although the command was interrupted")
		return nil, nil
	}) {
		if r.Error == "" {
			t.Errorf("%+v", r)
		}
	}
}

func written(t *testing.T, write func(w *strings.Builder) error) string {
	t.Helper()
	var out strings.Builder
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTables(t *testing.T) {
	costs := func(nodes int, now, consolidated float64) *assess.Report {
		return &assess.Report{
			Prices: "the tests",
			Now:    assess.Fleet{Nodes: nodes, Pods: 10 * nodes, MonthlyCost: now},
			Outcomes: []assess.Outcome{
				{Name: assess.Consolidated, MonthlyCost: consolidated, MonthlySavings: now - consolidated},
				{Name: assess.LowerBound, MonthlyCost: consolidated - 1},
			},
		}
	}
	half := int64(500)
	after := 1.5
	for _, tt := range []struct {
		name, got, want string
	}{
		{"doctor", written(t, func(w *strings.Builder) error {
			return clusters.Doctor(w, []clusters.Result[doctor.Report]{
				{Context: "production", Report: &doctor.Report{
					Findings: []doctor.Finding{
						{Severity: doctor.Error, Check: "stuck-taint", Object: "Node a"}, {Severity: doctor.Warning, Check: "x", Object: "y"},
					},
					NotChecked: []doctor.NotChecked{{}},
				}},
				{Context: "test", Report: &doctor.Report{}},
				{Context: "gone", Error: "find the cluster:\nno route"},
			})
		}), `
CONTEXT     ERRORS  WARNINGS  NOT CHECKED  WORST
production       1         1            1  stuck-taint: Node a
test             0         0            0  nothing found

Not read: 1 of 3 clusters
  gone: find the cluster: no route
`},
		{"assess", written(t, func(w *strings.Builder) error {
			return clusters.Assess(w, []clusters.Result[assess.Report]{
				{Context: "production", Report: costs(200, 20000, 15000)}, {Context: "test", Report: costs(5, 400, 400)},
			})
		}), `
CONTEXT     NODES  PODS  $/MONTH  CONSOLIDATED   SAVES     %  LOWER BOUND  UNPRICED
production    200  2000  $20,000       $15,000  $5,000  25 %      $14,999         0
test            5    50     $400          $400   $0.00   0 %         $399         0
all           205  2050  $20,400       $15,400  $5,000  25 %      $15,398         0

Prices: the tests
`},
		{"two contexts of one cluster", written(t, func(w *strings.Builder) error {
			return clusters.Assess(w, []clusters.Result[assess.Report]{
				{Context: "gone", Server: "https://a", Error: "no"},
				{Context: "admin", Server: "https://a", Report: costs(200, 20000, 15000)},
				{Context: "reader", Server: "https://a", Report: costs(200, 20000, 15000)},
				{Context: "test", Server: "https://b", Report: costs(5, 400, 400)},
			})
		}), `
CONTEXT  NODES  PODS  $/MONTH  CONSOLIDATED   SAVES     %  LOWER BOUND  UNPRICED
admin      200  2000  $20,000       $15,000  $5,000  25 %      $14,999         0
reader     200  2000  $20,000       $15,000  $5,000  25 %      $14,999         0
test         5    50     $400          $400   $0.00   0 %         $399         0
all        205  2050  $20,400       $15,400  $5,000  25 %      $15,398         0

Prices: the tests

Not read: 1 of 4 clusters
  gone: no

reader is the cluster of admin: counted once
`},
		{"top", written(t, func(w *strings.Builder) error {
			return clusters.Top(w, []clusters.Result[top.Report]{
				{Context: "a", Report: &top.Report{
					Nodes: make([]*top.Node, 3), Pods: 12, Pending: make([]top.PodReport, 1), CPU: top.Use{Allocatable: 1000, Requested: &half},
					Spend: top.Spend{HourlyCost: 2, PlannedHourlyCost: &after}, Forecast: &top.Forecast{}, Changes: make([]top.Change, 2),
				}},
				{Context: "gone", Error: "no"},
			})
		}), `
CONTEXT  NODES  PODS  PENDING   CPU  MEMORY    $/H  CHANGES  AFTER  LOWER BOUND
a            3    12        1  50 %       ?  2.000        2  1.500            ?

Not read: 1 of 2 clusters
  gone: no
`},
		{"a name that would be a row of its own", written(t, func(w *strings.Builder) error {
			return clusters.Doctor(w, []clusters.Result[doctor.Report]{
				{Context: "a\nall  0\x1b[2J\u202e", Report: &doctor.Report{}}, {Context: "b\nc", Error: "no\nroute"},
			})
		}), `
CONTEXT        ERRORS  WARNINGS  NOT CHECKED  WORST
a?all  0?[2J?       0         0            0  nothing found

Not read: 1 of 2 clusters
  b?c: no route
`},
		{"nothing", written(t, func(w *strings.Builder) error {
			return clusters.Top(w, []clusters.Result[top.Report]{{Context: "gone", Error: "no"}})
		}), "\nNot read: 1 of 1 clusters\n  gone: no\n"},
	} {
		if tt.got != strings.TrimPrefix(tt.want, "\n") {
			t.Errorf("%s:\n%s\nwant:\n%s", tt.name, tt.got, tt.want)
		}
	}
}

func TestJSONHasEachCluster(t *testing.T) {
	name := "x"
	got := written(t, func(w *strings.Builder) error {
		list := clusters.List[string]{
			Kind: "Name", Clusters: []clusters.Result[string]{{Context: "a", Report: &name}, {Context: "b", Error: "no <route>"}},
		}
		return list.JSON(w)
	})
	const want = `{
  "apiVersion": "dovetail.sh/v1alpha1",
  "kind": "NameList",
  "clusters": [
    {
      "context": "a",
      "report": "x"
    },
    {
      "context": "b",
      "error": "no <route>"
    }
  ]
}
`
	if got != want {
		t.Error(got)
	}
}
