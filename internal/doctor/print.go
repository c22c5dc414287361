package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Table writes the report for people: what is wrong, its consequence, what to do. Lines have at most width columns, or any number if it
// is 0. Those of a remedy are never folded, since people copy them.
func (r Report) Table(w io.Writer, width int) error {
	p := report.Page{Width: width}
	for _, f := range r.Findings {
		p.Labeled(fmt.Sprintf("%-7s  %s  ", strings.ToUpper(string(f.Severity)), f.Check), "         ", f.Object)
		prose(&p, "         seen: ", f.Seen)
		prose(&p, "         why:  ", f.Why)
		if f.Remedy != "" {
			p.Printf("         do:   %s\n", indented(f.Remedy))
		}
		p.Blank()
	}
	for _, line := range r.Unchecked() {
		p.Line("%s", line)
	}
	p.Line("%d checks made, %s, %d not checked", r.Checks, report.Plural(len(r.Findings), "finding"), len(r.NotChecked))
	_, err := p.WriteTo(w)
	return err
}

// prose adds text behind a label. Its line breaks stay.
func prose(p *report.Page, label, text string) {
	rest := strings.Repeat(" ", len(label))
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		p.Labeled(label, rest, line)
		label = rest
	}
}

// Unchecked returns the lines about checks that could not run: one for each cause.
func (r Report) Unchecked() (out []string) {
	checks := map[string][]string{}
	var causes []string
	for _, n := range r.NotChecked {
		if checks[n.Cause] == nil {
			causes = append(causes, n.Cause)
		}
		checks[n.Cause] = append(checks[n.Cause], n.Check)
	}
	for _, cause := range causes {
		what := checks[cause][0]
		if n := len(checks[cause]); n > 1 {
			what = fmt.Sprintf("%d checks", n)
		}
		out = append(out, fmt.Sprintf("not checked: %s: %s", what, strings.ReplaceAll(cause, "\n", " ")))
	}
	return out
}

// WideTable writes a line for each finding, and for each check that could not run.
func (r Report) WideTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SEVERITY\tCHECK\tOBJECT\tSEEN\tREMEDY")
	line := func(cells ...string) {
		for i := range cells {
			cells[i] = strings.Join(strings.Fields(cells[i]), " ")
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	for _, f := range r.Findings {
		line(string(f.Severity), f.Check, f.Object, f.Seen, f.Remedy)
	}
	for _, n := range r.NotChecked {
		line("not checked", n.Check, "-", n.Why, "-")
	}
	return t.Flush()
}

func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n               ")
}

// JSON writes the report for programs.
func (r Report) JSON(w io.Writer) error {
	return report.JSON(w, "Findings", r)
}

// Manifests writes the remedies that are manifests, as one YAML file to review and apply.
func (r Report) Manifests(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		if f.Manifest != "" {
			fmt.Fprintf(&b, "---\n# %s: %s: %s\n%s", f.Check, f.Object, strings.ReplaceAll(f.Seen, "\n", " "), f.Manifest)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
