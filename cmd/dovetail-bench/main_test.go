package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

func TestPlansAreReadToTheirStats(t *testing.T) {
	const plan = `{"apiVersion": "dovetail.sh/v1alpha1", "kind": "Plan", "claims": [{"pods": ["a"]}, {}],
		"existing": [], "unschedulable": [{"pod": "b"}], "stats": {"hourlyCost": 2, "solveSeconds": 0.5}}`
	got, err := readPlan(json.NewDecoder(strings.NewReader(plan)))
	if err != nil || got.rejected != 1 || got.Cost != 2 || got.Solve != 0.5 {
		t.Errorf("%+v, %v", got, err)
	}
	// What dovetail plan prints.
	printed, err := os.Open("../dovetail/testdata/plan/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	if got, err := readPlan(json.NewDecoder(printed)); err != nil || got.Cost == 0 || got.rejected == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{`{"claims": []}`, `{"claims": [`, ``} {
		if got, err := readPlan(json.NewDecoder(strings.NewReader(bad))); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}

func TestTheTableOfAPageIsReplaced(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("a\n"+tableBegins+"old\n"+tableEnds+"b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replaceTable(page, "new"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || string(text) != "a\n"+tableBegins+"\nnew\n"+tableEnds+"b\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.WriteFile(page, []byte("no table"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replaceTable(page, "new"); err == nil {
		t.Error("a page without a table is no error")
	}
}

// The page has the workloads that are measured, and a place for their table.
func TestThePageHasATable(t *testing.T) {
	text, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{tableBegins, tableEnds} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q", want)
		}
	}
	for name := range earlierFigures() {
		if !slices.Contains(published(), name) {
			t.Errorf("%s is not measured", name)
		}
	}
}

func TestRowsHaveEveryColumn(t *testing.T) {
	var out strings.Builder
	tab := table{out: &out}
	tab.row(workload.Benchmark{Kind: "batch", Pods: 1000}, figures{Compile: 0.01, Solve: 0.03, Cost: 3, Bound: 2})
	tab.row(workload.Benchmark{Kind: "batch", Pods: 2000}, figures{Compile: 0.04, Solve: 0.12, Cost: 3})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("lines %q", lines)
	}
	for _, line := range lines {
		if strings.Count(line, "|") != strings.Count(lines[0], "|") {
			t.Errorf("%q has other columns than %q", line, lines[0])
		}
	}
	if !strings.Contains(lines[2], "50.0 %") || !strings.HasSuffix(lines[3], "| 80.0 | 2.00 × |") {
		t.Errorf("rows %q", lines[2:])
	}
}
