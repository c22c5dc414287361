package planner_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

var update = flag.Bool("update", false, "write what is printed into the scripts; commit only what you understand")

// defaultCatalog is the catalog of scripts without one.
const defaultCatalog = "testdata/catalog.json"

// Each script is a user's input with the expected output: the table, and if the script has them, the wide table, the
// JSON and the notes.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			printed := runScript(t, archive)
			changed := false
			for i := range archive.Files {
				f := &archive.Files[i]
				got, isOutput := printed[f.Name]
				if !isOutput {
					continue
				}
				delete(printed, f.Name)
				if diff := cmp.Diff(string(f.Data), got); diff != "" && !*update {
					t.Errorf("%s (-want +got):\n%s", f.Name, diff)
				}
				changed = changed || string(f.Data) != got
				f.Data = []byte(got)
			}
			if printed["table"] != "" {
				t.Error("the script has no table")
			}
			if changed && *update {
				if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// runScript plans the script's inputs, which are its YAML and JSON files, and returns what is printed.
func runScript(t *testing.T, archive *txtar.Archive) map[string]string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(defaultCatalog)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		switch {
		case f.Name == "catalog.json":
			data = f.Data
		case slices.Contains([]string{".yaml", ".json"}, filepath.Ext(f.Name)):
			if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	catalog, err := planner.NewFile(data)
	if err != nil {
		t.Fatal(err)
	}
	world, err := manifest.Read([]string{dir}, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	settings := snapshot.Settings{PreferencePolicy: "Respect", MinValuesPolicy: "Strict"}
	for _, f := range archive.Files {
		if f.Name == "preference-cost" {
			settings.PreferencePolicy = snapshot.PreferencesPriced
			if settings.PreferenceCost, err = strconv.ParseFloat(strings.TrimSpace(string(f.Data)), 64); err != nil {
				t.Fatal(err)
			}
		}
		if f.Name == "scheduler-config" {
			scheduler, err := cluster.ParseSchedulerConfig(string(f.Data))
			if err != nil {
				t.Fatal(err)
			}
			settings.DefaultSpread, settings.Profiles = scheduler.DefaultSpread, scheduler.Profiles
		}
	}
	snap, notes, err := planner.BuildSnapshot(world, planner.Config{Catalog: catalog, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	notes = append(notes, planner.Missing(world, snap)...)
	report := planner.Report{Plan: schedule.Solve(snap, schedule.Budget{})}
	if err := validate.Plan(snap, report.Plan); err != nil {
		t.Errorf("the plan breaks a rule: %v", err)
	}
	var table, wide, json, noted strings.Builder
	if err := report.Table(&table); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table.String()) {
		if width := len(strings.TrimSuffix(line, "\n")); width > 80 {
			t.Errorf("%d columns, want at most 80: %s", width, line)
		}
	}
	if err := report.WideTable(&wide); err != nil {
		t.Fatal(err)
	}
	if err := report.JSON(&json); err != nil {
		t.Fatal(err)
	}
	for _, note := range append(world.Notes, notes...) {
		noted.WriteString(strings.ReplaceAll(note, dir+string(filepath.Separator), "") + "\n")
	}
	return map[string]string{
		"table": unstable.ReplaceAllString(
			table.String(),
			"",
		), "wide": unstable.ReplaceAllString(wide.String(), ""), "json": unstable.ReplaceAllString(json.String(), ""), "notes": noted.String(),
	}
}

// unstable are lines about the search, which are no part of a script.
var unstable = regexp.MustCompile(`(?m)^ *("classes"|"lowerBound"|Bound:).*\n`)
