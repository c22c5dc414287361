package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A push runs each part of the tests once.
func TestAPushRunsEachPart(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(script), "\nmake ci\n") {
		t.Errorf("CI does not end with make ci:\n%s", script)
	}
	made := exec.CommandContext(t.Context(), "make", "-n", "ci")
	made.Dir = root
	out, err := made.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"build", "scenarios", "lint", "unit", "lab", "docs", "console-check"} {
		if n := strings.Count(string(out), "hack/part "+part+" "); n != 1 {
			t.Errorf("make ci runs the part %s %d times, want once", part, n)
		}
	}
	if checks := "for check in catalog chart monitoring docs image;"; !strings.Contains(string(out), checks) {
		t.Errorf("make ci does not make the checks %q", checks)
	}
}
