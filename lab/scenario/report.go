package scenario

import (
	"fmt"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/scenario/screen"
)

// Report prints the progress of a scenario.
type Report struct{ painter *screen.Painter }

// margin indents the text below a step's name: the width of its mark and duration.
const margin = "              "

// NewReport returns a Listener that prints.
func NewReport(p *screen.Painter) *Report { return &Report{painter: p} }

// Title prints the name and summary of a scenario.
func (r *Report) Title(s Scenario) { r.painter.Print(s.Name + ": " + s.Summary) }

// Begin implements Listener.
func (r *Report) Begin(step string) {
	if r.painter.InPlace() {
		r.painter.Paint([]string{"  …" + margin[3:] + step})
	}
}

// End implements Listener.
func (r *Report) End(s StepResult) {
	mark := "✓"
	if !s.Passed {
		mark = "✗"
	}
	r.painter.Print(fmt.Sprintf("  %s %6.1f s  %s", mark, s.Seconds, s.Name))
	for _, note := range s.Notes {
		r.painter.Print(margin + note)
	}
	if s.Error != "" {
		r.painter.Print(indent(margin, s.Error))
	}
}

// Result prints the outcome, with the evidence if the scenario failed.
func (r *Report) Result(result Result) {
	switch {
	case result.Passed:
		r.painter.Print(fmt.Sprintf("%s: passed in %.1f s", result.Scenario, result.Seconds))
		return
	case result.Interrupted:
		r.painter.Print(fmt.Sprintf("%s: interrupted after %.1f s", result.Scenario, result.Seconds))
		return
	}
	for _, e := range result.Evidence {
		r.painter.Print("", "  "+e.Title+":")
		for _, line := range e.Lines {
			r.painter.Print(indent("    ", line))
		}
	}
	r.painter.Print("", fmt.Sprintf("%s: FAILED after %.1f s; logs: %s", result.Scenario, result.Seconds, result.StateDir))
}

func indent(by, text string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}
