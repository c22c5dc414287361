package scenario_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scenario"
)

// The binary runs each of its scenarios, or with DOVETAIL_SCENARIOS=push those that are not nightly. The alerts that we ship fire over the
// metrics of those with failures, and every metric of Karpenter's is among what they scrape.
func TestScenarios(t *testing.T) {
	t.Parallel() // the tests of `up`, which mostly wait as well, run beside the long scenarios
	binary := labtest.Binary(t)
	out, err := exec.CommandContext(t.Context(), binary, "list", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []struct {
		Name          string
		Long, Nightly bool
	}
	if err := json.Unmarshal(out, &scenarios); err != nil {
		t.Fatal(err)
	}
	if len(scenarios) < 4 {
		t.Fatalf("the binary lists only %d scenarios: %s", len(scenarios), out)
	}
	// Fewer nodes than by default, since several worlds run in parallel here. What the controller waits for without anything to do takes a
	// fifth of its time, except at night.
	all, flags := os.Getenv("DOVETAIL_SCENARIOS") != "push", []string{"--nodes", "40"}
	if !all {
		flags = []string{"--nodes", strconv.Itoa(scenario.MinNodes), "--pace", "5"}
	}
	recorded := newRecordings(t)
	// Each has a world of its own, and mostly waits. Parallel subtests would start in any order; the long ones must
	// start first, so that no long one runs alone at the end. This test takes one of the parallel tests' slots itself and
	// computes nothing, hence one more.
	var group errgroup.Group
	group.SetLimit(atOnce(t) + 1)
	for _, long := range []bool{true, false} {
		for _, s := range scenarios {
			if s.Long == long && (all || !s.Nightly) {
				group.Go(func() error {
					t.Run(s.Name, func(t *testing.T) {
						runScenario(t, binary, s.Name, append(recorded.flags(t, s.Name), flags...))
						recorded.checkAlerts(t, s.Name)
					})
					return nil
				})
			}
		}
	}
	_ = group.Wait() // they fail by themselves
	t.Run("metrics of Karpenter", func(t *testing.T) { recorded.checkNames(t, all) })
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

func runScenario(t *testing.T, binary, name string, flags []string) {
	t.Helper()
	args := append([]string{"run", name, "-o", "json"}, flags...)
	out, failed := exec.CommandContext(t.Context(), binary, args...).Output()
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
