package poolreport

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// shown sets how many lines a list has at most: more are counted.
const shown = 10

// Text prints the report, folded at width columns; 0 folds nothing, and lists everything.
func (r *Report) Text(w io.Writer, width int) error {
	p := &report.Page{Width: width}
	p.Line("%s", r.Verdict)
	r.status(p)
	r.budgets(p)
	r.moving(p)
	r.staying(p)
	r.drift(p)
	r.types(p)
	p.Source(r.Prices, r.Now)
	_, err := p.WriteTo(w)
	return err
}

// verdict is the first line.
func (r *Report) verdict() string {
	subject := fmt.Sprintf("nodepool %s has %s", r.Name, report.Plural(r.Nodes, "node"))
	if r.HourlyCost > 0 {
		subject += fmt.Sprintf(" for %s/h", report.Money(r.HourlyCost))
	}
	for _, c := range r.Conditions {
		if c.Bad && c.Type != "Ready" {
			return fmt.Sprintf("%s, and its condition %s is %s: %s", subject, c.Type, c.Status, cmp.Or(c.Message, c.Reason))
		}
	}
	drifted := 0
	for _, d := range r.Drift {
		drifted += d.Nodes
	}
	going := "to go in the next passes"
	if r.Stopped {
		going += " at least (--full searches on)"
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{r.Starting, "starting"}, {len(r.Disrupted), "disrupted now"}, {drifted, "drifted"}, {len(r.Going), going}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if len(parts) > 0 {
		subject += ": " + strings.Join(parts, ", ")
	}
	switch {
	case r.BudgetError != "":
		return subject + ". A budget is invalid, so that none goes: " + r.BudgetError
	case len(r.Going) == 0 && r.Stopped:
		return subject + ". The search stopped before it found any to remove: --full searches on"
	case len(r.Going) == 0 && len(r.Disrupted) == 0 && len(r.Stays) > 0:
		return subject + ". None goes now; most often: " + withinSentence(r.Stays[0].Message)
	}
	return subject
}

// withinSentence begins a text in lower case, unless its first word is a name, such as PodDisruptionBudget.
func withinSentence(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if first == "" || strings.ToLower(first[1:]) != first[1:] {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}

func (r *Report) status(p *report.Page) {
	var lines []string
	if r.Replicas != nil {
		lines = append(lines, fmt.Sprintf("static: spec.replicas %d, whatever pods need", *r.Replicas))
	} else if r.Weight > 0 {
		lines = append(lines, fmt.Sprintf("weight %d", r.Weight))
	}
	for _, l := range r.Limits {
		lines = append(lines, fmt.Sprintf("limit of %s: %s of %s used (%d%%)", l.Resource, l.Used, l.Limit, report.Percent(l.Share)))
	}
	for _, c := range r.Conditions {
		if c.Bad {
			lines = append(lines, fmt.Sprintf("condition %s is %s: %s %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	if len(lines) == 0 {
		return
	}
	p.Heading("Limits and conditions")
	for _, line := range lines {
		p.Item("%s", line)
	}
}

func (r *Report) budgets(p *report.Page) {
	p.Heading("How many nodes may be disrupted at once, over the next 24 h")
	if r.BudgetError != "" {
		p.Item("none: %s", r.BudgetError)
	}
	for _, s := range r.Budgets {
		var reasons []string
		for _, reason := range s.Reasons {
			reasons = append(reasons, string(reason))
		}
		p.Item("%s: %s", strings.Join(reasons, ", "), s.Text)
	}
	if n := len(r.Disrupted); n > 0 {
		p.Item("%s count as disrupted now:", report.Plural(n, "node"))
	}
	for i, d := range r.Disrupted {
		if p.Width > 0 && i == shown {
			p.Detail("and %d more: -o wide", len(r.Disrupted)-shown)
			break
		}
		line := d.Node + ": " + d.Why
		if d.Command != "" {
			line += " (command " + d.Command + ")"
		}
		p.Detail("%s", line)
	}
}

func (r *Report) moving(p *report.Page) {
	if len(r.Going) == 0 {
		return
	}
	p.Heading("What the next passes would remove")
	for i, g := range r.Going {
		if p.Width > 0 && i == shown {
			p.Item("and %d more: -o wide", len(r.Going)-shown)
			break
		}
		line := fmt.Sprintf("%s: %s", g.Node, g.Reason)
		if g.Together > 1 {
			line += fmt.Sprintf(", one of %d that save %s/h together", g.Together, report.Money(g.HourlySavings))
		} else if g.HourlySavings != 0 {
			line += fmt.Sprintf(", saves %s/h", report.Money(g.HourlySavings))
		}
		p.Item("%s", line)
	}
}

func (r *Report) staying(p *report.Page) {
	if len(r.Stays) == 0 {
		return
	}
	p.Heading("Why the other nodes stay")
	for i, s := range r.Stays {
		if p.Width > 0 && i == shown {
			p.Item("and %d more reasons: -o wide", len(r.Stays)-shown)
			break
		}
		p.Item("%s: %s", report.Plural(s.Nodes, "node"), s.Message)
		p.Detail("%s", strings.Join(s.Names, ", "))
	}
}

func (r *Report) drift(p *report.Page) {
	if len(r.Drift) == 0 {
		return
	}
	p.Heading("Drift")
	for _, d := range r.Drift {
		p.Item("%s: %s", report.Plural(d.Nodes, "node"), d.Reason)
		for _, f := range d.Fields {
			p.Detail("%s", f.String())
		}
		p.Detail("%s", strings.Join(d.Names, ", "))
	}
}

func (r *Report) types(p *report.Page) {
	if r.Types == 0 {
		return
	}
	p.Heading("What it can launch: %d of %s", r.Admitted, report.Plural(r.Types, "instance type"))
	for i, e := range r.Excluded {
		if p.Width > 0 && i == shown {
			p.Item("and %d more rules: -o wide", len(r.Excluded)-shown)
			break
		}
		p.Item("%d excluded by %s", e.Types, e.Requirement)
	}
}
