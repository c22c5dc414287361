package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

const savingsPage = "../../docs/savings.md"

// The lines around the table of the page.
const savingsBegin, savingsEnd = "<!-- the table begins -->\n", "<!-- the table is complete -->\n"

// savingsFleet is the part of a plan that the page shows.
type savingsFleet struct {
	Claims        []struct{}
	Unschedulable []struct{}
	Stats         struct{ HourlyCost, LowerBound float64 }
}

// fleetFor plans the pods of a file, and a NodePool of examples/savings in place of the file's own if there is a name.
func fleetFor(t *testing.T, file, pool string) savingsFleet {
	t.Helper()
	args := []string{"plan", "-f", file, "-o", "json", "--no-timings"}
	if pool != "" {
		args = append(args, "-f", "../../examples/savings/"+pool+".yaml")
	}
	stdout, stderr, err := command("", args...)
	if err != nil {
		t.Fatalf("plan %s with %q: %v: %s", file, pool, err, stderr)
	}
	var out savingsFleet
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Unschedulable) > 0 {
		t.Errorf("%s with %q: %d pods have no node, so that costs cannot be compared", file, pool, len(out.Unschedulable))
	}
	return out
}

// savingsRow is the row of a workload: one instance type, then pools that allow more and more.
func savingsRow(t *testing.T, kind string) string {
	t.Helper()
	list, err := workload.Benchmark{Kind: kind, Pods: 2000, Pool: "ondemand", Seed: 7}.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), kind+".json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	base := fleetFor(t, file, kind)
	row := fmt.Sprintf("| %s | $%.2f, %d nodes |", kind, base.Stats.HourlyCost, len(base.Claims))
	for _, pool := range []string{"family", "amd64", ""} {
		f := fleetFor(t, file, pool)
		row += fmt.Sprintf(" $%.2f (%.0f %%) |", f.Stats.HourlyCost, 100*(1-f.Stats.HourlyCost/base.Stats.HourlyCost))
		if pool == "" {
			row += fmt.Sprintf(" $%.2f |\n", f.Stats.LowerBound)
		}
	}
	return row
}

// The page shows what the plans cost. UPDATE=1 writes it anew: prices change with the built-in catalog.
func TestSavingsPage(t *testing.T) {
	page, err := os.ReadFile(savingsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), savingsBegin)
	_, after, closed := strings.Cut(rest, savingsEnd)
	if !begins || !closed {
		t.Fatalf("%s has no table", savingsPage)
	}
	table := "\n| Workload | One type, $/h | Any size of m7i | c, m and r, amd64 | c, m and r, with Graviton | Lower bound |\n" +
		"|---|--:|--:|--:|--:|--:|\n"
	for _, kind := range []string{"replicas", "batch", "diverse"} {
		table += savingsRow(t, kind)
	}
	want := before + savingsBegin + table + "\n" + savingsEnd + after
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(savingsPage, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("%s is stale: run UPDATE=1 go test ./cmd/dovetail -run TestSavingsPage. The table is:\n%s", savingsPage, table)
	}
}
