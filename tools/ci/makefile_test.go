package ci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Go caches the result of a test although programs, or files outside of its module, are others. CI keeps the cache between runs.
func TestMakeNeverTakesResultsFromTheCache(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for n, line := range strings.Split(string(text), "\n") {
		if !strings.Contains(line, "go test ") || !strings.Contains(line, "DOVETAIL_LAB=") && !strings.Contains(line, "GOWORK=off go test") {
			continue
		}
		if found++; !strings.Contains(line, " -count=1 ") {
			t.Errorf("Makefile:%d runs tests without -count=1", n+1)
		}
	}
	if found < 6 {
		t.Errorf("found only %d lines that run tests", found)
	}
}
