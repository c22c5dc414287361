package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Table writes the report for people: what is wrong, why it matters, what to do.
func (r Report) Table(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-7s  %s  %s\n", strings.ToUpper(string(f.Severity)), f.Check, f.Object)
		fmt.Fprintf(&b, "         seen: %s\n", indented(f.Seen))
		fmt.Fprintf(&b, "         why:  %s\n", indented(f.Why))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "         do:   %s\n", indented(f.Remedy))
		}
		b.WriteByte('\n')
	}
	for _, n := range r.NotChecked {
		fmt.Fprintf(&b, "not checked: %s: %s\n", n.Check, n.Why)
	}
	fmt.Fprintf(&b, "%d checks made, %s, %s\n", r.Checks, count(len(r.Findings), "finding"), count(len(r.NotChecked), "not checked"))
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, what string) string {
	if what == "finding" && n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n               ")
}

// JSON writes the report for machines.
func (r Report) JSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// Manifests writes the remedies that are manifests, as one YAML file to look at and apply.
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
