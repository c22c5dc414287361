package reference

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Tables are the values as Markdown: a table for the values at the root that are in no section, then one for each section of the root.
func Tables(values []Value) (string, error) {
	var out strings.Builder
	var alone []Value
	for _, v := range values {
		if v.Section == nil {
			alone = append(alone, v)
		}
	}
	if err := table(&out, alone); err != nil {
		return "", err
	}
	for _, v := range values {
		if v.Section == nil {
			continue
		}
		fmt.Fprintf(&out, "\n### %s\n\n", v.Name())
		if v.Text != "" {
			fmt.Fprintf(&out, "%s\n\n", v.Text)
		}
		var below []Value
		Each(v.Section, func(v Value) {
			if v.Section == nil {
				below = append(below, v)
			}
		})
		if err := table(&out, below); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

func table(out *strings.Builder, values []Value) error {
	out.WriteString("| Value | Type | Default | What it does |\n|---|---|---|---|\n")
	for _, v := range values {
		var standard any
		if err := v.Default.Decode(&standard); err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		text, err := json.Marshal(standard)
		if err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		escape := strings.NewReplacer("|", `\|`).Replace
		fmt.Fprintf(out, "| `%s` | %s | `%s` | %s |\n", v, v.Type, escape(string(text)), escape(v.Text))
	}
	return nil
}
