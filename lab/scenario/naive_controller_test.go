package scenario

import (
	"path/filepath"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// theScenarioFails is the step of a naive controller's story that has to fail.
const theScenarioFails = "the story notices"

// runNaive tells the story of a naive controller, expects all to pass but the last step, which notices it, and returns what that says.
func runNaive(t *testing.T, story Scenario) (message string) {
	t.Helper()
	binary := labtest.Binary(t)
	result := Run(t.Context(), story, world.Config{
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
	// Besides its own steps, a world is booted and ended.
	if want := len(story.Steps) + 2; len(result.Steps) != want {
		t.Errorf("%d steps were told, want %d: %+v", len(result.Steps), want, result.Steps)
	}
	return message
}
