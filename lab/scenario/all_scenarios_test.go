package scenario_test

import (
	"encoding/json"
	"flag"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scenario"
)

// Every story that the binary knows is told by it.
func TestScenarios(t *testing.T) {
	binary := labtest.Binary(t)
	out, err := exec.CommandContext(t.Context(), binary, "list", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var stories []struct {
		Name string
		Long bool
	}
	if err := json.Unmarshal(out, &stories); err != nil {
		t.Fatal(err)
	}
	if len(stories) < 4 {
		t.Fatalf("there are only %d stories: %s", len(stories), out)
	}
	// Each has a world of its own, and waits for most of its time. Parallel subtests would begin in any order; the long ones are to
	// begin first, so that none is waited for in the end.
	var group errgroup.Group
	group.SetLimit(atOnce(t))
	for _, long := range []bool{true, false} {
		for _, s := range stories {
			if s.Long == long {
				group.Go(func() error {
					t.Run(s.Name, func(t *testing.T) { runScenario(t, binary, s.Name) })
					return nil
				})
			}
		}
	}
	_ = group.Wait() // they fail by themselves
}

// atOnce is how many tests may run at the same time.
func atOnce(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func runScenario(t *testing.T, binary, name string) {
	t.Helper()
	// The fleet is smaller than the story's own: many worlds are told at a time here.
	out, failed := exec.CommandContext(t.Context(), binary, "run", name, "-o", "json", "--nodes", "40").Output()
	var results []scenario.Result
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatalf("%v (%v) in:\n%s", err, failed, out)
	}
	if failed != nil || len(results) != 1 || !results[0].Passed {
		t.Errorf("%v\n%s", failed, out)
	}
	for _, r := range results {
		for _, step := range r.Steps {
			t.Logf("%6.1f s  %s %q", step.Seconds, step.Name, step.Notes)
		}
	}
}
