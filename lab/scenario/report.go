package scenario

import (
	"fmt"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/scenario/screen"
)

// Report tells people how a story goes.
type Report struct{ painter *screen.Painter }

// margin is how far the text of a step is from the edge: a mark and a time.
const margin = "              "

// NewReport returns a Listener that prints.
func NewReport(p *screen.Painter) *Report { return &Report{painter: p} }

// Title announces a story.
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

// Result tells how it went, with the evidence if it did not go well.
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
	r.painter.Print("", fmt.Sprintf("%s: FAILED after %.1f s; logs are kept in %s", result.Scenario, result.Seconds, result.StateDir))
}

func indent(by, text string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}
