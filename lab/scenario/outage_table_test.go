package scenario

import (
	"os"
	"strings"
	"testing"
)

// docs/reliability.md has the tables of outages, row by row as the scenarios run them.
func TestPageHasTheTablesOfOutages(t *testing.T) {
	page, err := os.ReadFile("../../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{awsTable(), apiTable()} {
		if !strings.Contains(string(page), "\n"+table+"\n") {
			t.Errorf("docs/reliability.md does not have this table:\n%s", table)
		}
	}
}

// Each cell of the tables is a step of its scenario, and each step of these scenarios about an outage a cell.
func TestEachCellIsAStep(t *testing.T) {
	steps := map[string]bool{}
	for _, s := range append(awsDown(), apiServerDown(DefaultFleet)) {
		for _, step := range s.Steps {
			if strings.HasSuffix(step.Name, ": launches wait") || strings.HasSuffix(step.Name, ": launches go on") {
				steps[s.Name+"/"+step.Name] = true
			}
		}
	}
	cells := 0
	for _, o := range outages {
		for i, c := range circumstances {
			outcome := o.outcome(circumstance(i))
			if outcome == "–" {
				continue
			}
			if cells++; !steps[c.scenario+"/"+o.name+": "+outcome] {
				t.Errorf("no step for %q in %s", o.name, c.scenario)
			}
		}
	}
	for _, o := range apiOutages {
		if cells++; !steps["api-server-down/API server: "+o.name+": "+o.outcome()] {
			t.Errorf("no step for %q", o.name)
		}
	}
	if cells != len(steps) {
		t.Errorf("%d steps for %d cells", len(steps), cells)
	}
}
