package ci

import (
	"os/exec"
	"strings"
	"testing"
)

// notes runs what the release workflow does for the text of a release.
func notes(t *testing.T, version string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "awk", "-v", "version="+version, "-f", "hack/release-notes.awk", "CHANGELOG.md")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A release has the notes of its own version, and none is made without notes.
func TestReleaseNotes(t *testing.T) {
	first, err := notes(t, "0.1.0")
	if err != nil || !strings.Contains(first, "The first release.") || strings.Contains(first, "## [") || strings.Contains(first, "\n[") {
		t.Errorf("notes of 0.1.0: %v\n%s", err, first)
	}
	for _, version := range []string{"0.1", "99.0.0"} {
		if out, err := notes(t, version); err == nil {
			t.Errorf("version %s has notes:\n%s", version, out)
		}
	}
}
