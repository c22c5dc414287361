package scenario

import (
	"path/filepath"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// theScenarioFails is the step that a naive controller has to fail.
const theScenarioFails = "the scenario's check fails"

// runNaive runs a scenario with a naive controller. It expects every step but theScenarioFails to pass, and returns its
// error.
func runNaive(t *testing.T, s Scenario) (message string) {
	t.Helper()
	binary := labtest.Binary(t)
	result := Run(t.Context(), s, world.Config{
		Dir: t.TempDir(), Executable: binary, Dovetail: filepath.Join(filepath.Dir(binary), "dovetail"), Unrestricted: true,
	}, Silent{})
	for _, step := range result.Steps {
		t.Logf("%6.1f s  %s %q", step.Seconds, step.Name, step.Notes)
		noticed := step.Name == theScenarioFails
		if step.Passed == noticed {
			t.Errorf("step %q: passed = %v: %s", step.Name, step.Passed, step.Error)
		}
		if noticed {
			message = step.Error
		}
	}
	// Three steps more: boot and close the world, and replay what the controller decided before the naive one took over.
	if want := len(s.Steps) + 3; len(result.Steps) != want {
		t.Errorf("%d steps ran, want %d: %+v", len(result.Steps), want, result.Steps)
	}
	return message
}
