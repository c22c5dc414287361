package podreport

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// defaultWidth is the width of the text in columns: that of a terminal, if nobody has made it wider.
const defaultWidth = 80

// JSON prints the report for programs.
func (r *Report) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// Text prints the report for people, in lines of at most 80 columns.
func (r *Report) Text(w io.Writer) error { return r.print(w, defaultWidth) }

// Wide prints the report for people, one line for each item.
func (r *Report) Wide(w io.Writer) error { return r.print(w, 0) }

func (r *Report) print(w io.Writer, width int) error {
	p := &page{width: width}
	p.paragraph("", r.Cause)
	p.list("Why there", r.Why)
	if len(r.NodePools) > 1 || len(r.NodePools) == 1 && r.NodePools[0].More > 0 { // else the first line has all of it
		p.heading("NodePools")
		for _, pool := range r.NodePools {
			text := pool.NodePool + ": " + inShort(pool.Message)
			if pool.More > 0 {
				text += fmt.Sprintf(" (and %s)", plural(pool.More, "more rule"))
			}
			p.paragraph("  ", text)
		}
	}
	p.changes(r)
	if r.State == Unschedulable && r.Change == nil && r.Search != nil {
		p.WriteString("\n")
		p.paragraph("", unsolved(r.Search))
	}
	p.list("What limits where it may run", r.Constraints)
	p.list("What keeps its node from being disrupted", r.Blocks)
	p.list("Notes", r.Notes)
	_, err := io.WriteString(w, p.String())
	return err
}

// page is text in the making. A width of 0 breaks no lines.
type page struct {
	strings.Builder
	width int
}

func (p *page) heading(text string) { p.WriteString("\n" + text + "\n") }

// list prints a heading and items, unless there are none.
func (p *page) list(heading string, items []string) {
	if len(items) == 0 {
		return
	}
	p.heading(heading)
	for _, item := range items {
		p.paragraph("  ", item)
	}
}

// paragraph prints text with an indent, and two more columns of it after the first line.
func (p *page) paragraph(indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == indent || strings.TrimSpace(line) == "":
			line += word
		case p.width == 0 || len(line)+1+len(word) <= p.width:
			line += " " + word
		default:
			p.WriteString(line + "\n")
			line = indent + "  " + word
		}
	}
	p.WriteString(line + "\n")
}

// changes prints the smallest change and the alternatives.
func (p *page) changes(r *Report) {
	if r.Change != nil {
		p.heading("Smallest change")
		p.change(r.Change)
	}
	for i := range r.Alternatives {
		p.heading(fmt.Sprintf("Alternative %d", i+1))
		p.change(&r.Alternatives[i])
	}
}

// change prints one change. What cannot be patched is created anew, or by hand.
func (p *page) change(c *Change) {
	p.paragraph("  ", c.Summary)
	for i := range c.Edits {
		e := &c.Edits[i]
		for _, f := range e.Fields {
			p.paragraph("    ", fmt.Sprintf("%s: %s -> %s", f.Field, orAbsent(f.Old), orAbsent(f.New)))
		}
	}
	p.paragraph("  ", "With it, "+outlook(c.Node))
	for i := range c.Edits {
		switch e := &c.Edits[i]; {
		case e.Command != "":
			p.command(e.Command)
		case e.Manifest != "":
			p.command(strings.TrimSuffix(e.Manifest, "\n"))
		case e.Action == Recreate && !slices.ContainsFunc(c.Edits[:i], func(b Edit) bool { return b.Object == e.Object && b.Action == Recreate }):
			p.paragraph("  ", "It cannot change in place: create "+e.String()+" anew.")
		}
	}
}

// command prints a command as it is to be typed. Its lines are not broken: a shell reads them.
func (p *page) command(text string) {
	for line := range strings.Lines(text) {
		p.WriteString("    " + line)
	}
	p.WriteString("\n")
}

func orAbsent(value string) string {
	if value == "" {
		return "(none)"
	}
	return value
}

// outlook is where the pod goes with a change.
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
		text += ", shared with " + plural(n.With, "other pod")
	}
	return text + "."
}

// unsolved states that no change was found.
func unsolved(e *Effort) string {
	if e.Candidates == 0 {
		return "No change of the objects is known with which the pod gets a node."
	}
	text := fmt.Sprintf("No change of one or two fields was found with which the pod gets a node, among %s in %s",
		plural(e.Candidates, "candidate"), plural(e.Plans, "plan"))
	if !e.Complete {
		text += "; the search stopped at its bound"
	}
	return text + "."
}
