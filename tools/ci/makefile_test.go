package ci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Go takes the result of a test from its cache although files outside of its module, or programs that it runs, are others. CI keeps the
// cache between runs. So tests that read such files are linked with a hash of them, and those that run scenarios never use the cache.
func TestMakeTakesNoWrongResultsFromTheCache(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	lines := strings.Split(strings.ReplaceAll(string(text), "\\\n", ""), "\n")
	for _, line := range lines {
		if !strings.Contains(line, "go test ") || strings.Contains(line, " -run '^$$' ") || strings.Contains(line, "UPDATE=1") {
			continue
		}
		found++
		runsPrograms := strings.Contains(line, "./lab/scenario") && !strings.Contains(line, "grep -v") || strings.Contains(line, "./lab/docstest")
		switch {
		case strings.Contains(line, " -count=1 "), strings.Contains(line, "DOVETAIL_WORLDS="):
		case runsPrograms:
			t.Errorf("runs programs without -count=1: %s", line)
		case !strings.Contains(line, "$(COUNT) $(call link,"):
			t.Errorf("neither takes nothing from the cache nor names its inputs: %s", line)
		}
	}
	if found < 9 {
		t.Errorf("found only %d lines that run tests", found)
	}
}
