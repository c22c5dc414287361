package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page about the lower bound has the gaps that the table of performance.md has.
func TestGapsOfTheLowerBoundPage(t *testing.T) {
	measured, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/lower-bound.md")
	if err != nil {
		t.Fatal(err)
	}
	gaps := regexp.MustCompile(`(?m)^\| (\w+) \| ([\d,]+) \| ([\d.]+ %) \|$`).FindAllStringSubmatch(string(page), -1)
	if len(gaps) < 5 {
		t.Fatalf("only %d gaps", len(gaps))
	}
	for _, gap := range gaps {
		name := gap[1] + "-" + strings.ReplaceAll(gap[2], ",", "")
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \|.*$`).FindString(string(measured))
		if !strings.Contains(row, " | "+gap[3]+" | ") {
			t.Errorf("%s has the gap %s, and performance.md the row %q", name, gap[3], row)
		}
	}
}
