package podreport

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// JSON prints the report for programs.
func (r *Report) JSON(w io.Writer) error {
	return report.JSON(w, "PodExplanation", r)
}

// Text prints the report for people, in lines of at most 80 columns.
func (r *Report) Text(w io.Writer) error { return r.print(w, report.Width) }

// Wide prints the report for people, one line for each item.
func (r *Report) Wide(w io.Writer) error { return r.print(w, 0) }

func (r *Report) print(w io.Writer, width int) error {
	p := &report.Page{Width: width}
	notes := r.Notes
	if r.workload != "" {
		p.Line("%s.", r.workload)
		p.Blank()
		notes = notes[1:]
	}
	p.Line("%s", r.Cause)
	list(p, "Why there", r.Why)
	if len(r.NodePools) > 1 || len(r.NodePools) == 1 && r.NodePools[0].More > 0 { // else the first line has all of it
		p.Heading("NodePools")
		for _, pool := range r.NodePools {
			text := pool.NodePool + ": " + pool.short
			if pool.More > 0 {
				text += fmt.Sprintf(" (and %s)", report.Plural(pool.More, "more rule"))
			}
			p.Item("%s", text)
		}
	}
	r.changes(p)
	if r.State == Unschedulable && r.Change == nil && r.Search != nil {
		p.Blank()
		p.Line("%s", unsolved(r.Search))
	}
	list(p, "What limits where it may run", r.Constraints)
	list(p, "What keeps its node from being disrupted", r.Blocks)
	list(p, "Notes", notes)
	p.Source(r.Prices, time.Time{})
	_, err := p.WriteTo(w)
	return err
}

// list prints a heading and items, unless there are none.
func list(p *report.Page, heading string, items []string) {
	if len(items) == 0 {
		return
	}
	p.Heading("%s", heading)
	for _, item := range items {
		p.Item("%s", item)
	}
}

// changes prints the smallest change and the alternatives.
func (r *Report) changes(p *report.Page) {
	if r.Change != nil {
		p.Heading("Smallest change")
		change(p, r.Change)
	}
	for i := range r.Alternatives {
		p.Heading("Alternative %d", i+1)
		change(p, &r.Alternatives[i])
	}
}

// change prints one change. What cannot be patched is created anew, or by hand.
func change(p *report.Page, c *Change) {
	p.Item("%s", c.Summary)
	for i := range c.Edits {
		e := &c.Edits[i]
		for _, f := range e.Fields {
			p.Indented("    ", fmt.Sprintf("%s: %s -> %s", f.Field, orAbsent(f.Old), orAbsent(f.New)))
		}
	}
	p.Indented("  ", "With it, "+outlook(c.Node))
	for i := range c.Edits {
		switch e := &c.Edits[i]; {
		case e.Command != "":
			if e.Action == Recreate {
				p.Indented("  ", "It cannot change in place, and no controller creates it again. This replaces it:")
			}
			command(p, e.Command)
		case e.Manifest != "":
			command(p, strings.TrimSuffix(e.Manifest, "\n"))
		case e.Action == Recreate && !slices.ContainsFunc(c.Edits[:i], func(b Edit) bool { return b.Object == e.Object && b.Action == Recreate }):
			p.Indented("  ", "It cannot change in place: create "+e.String()+" anew.")
		}
	}
}

// command prints a command as it is to be typed. Its lines are not broken: a shell reads them.
func command(p *report.Page, text string) {
	for line := range strings.Lines(text) {
		p.Printf("    %s", line)
	}
	p.Blank()
}

func orAbsent(value string) string {
	if value == "" {
		return "(none)"
	}
	return value
}

// outlook returns where the pod goes with a change.
func outlook(n *Place) string {
	switch {
	case n == nil:
		return "nothing else keeps the pod from a node."
	case !n.New:
		return "the pod fits on node " + n.Name + ", which exists: it costs nothing more."
	}
	text := "the pod gets a new " + n.InstanceType
	if n.Zone != "" {
		text += " in " + n.Zone
	}
	text += " (" + n.CapacityType + ", NodePool " + n.NodePool + "), " + dollars(n.HourlyCost)
	if n.With > 0 {
		text += ", shared with " + report.Plural(n.With, "other pod")
	}
	return text + "."
}

// unsolved states that no change was found.
func unsolved(e *Effort) string {
	if e.Candidates == 0 {
		return "No change of the objects is known with which the pod gets a node."
	}
	text := fmt.Sprintf("No change of one or two fields was found with which the pod gets a node, among %s in %s",
		report.Plural(e.Candidates, "candidate"), report.Plural(e.Plans, "plan"))
	if !e.Complete {
		text += "; the search stopped at its bound"
	}
	return text + "."
}
