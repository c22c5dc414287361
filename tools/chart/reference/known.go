package reference

import (
	"fmt"
	"strings"
)

// Known is a template with the names of all values: a line for each section, with its path, a colon, and its names. The root's path
// is a period. A map that takes any keys is no section.
func Known(values []Value) []byte {
	var out strings.Builder
	out.WriteString("{{/* Made from values.yaml by \"make generate\": the names in each section of the values. */}}\n")
	out.WriteString("{{- define \"dovetail.known\" }}\n")
	fmt.Fprintf(&out, ".: global %s\n", strings.Join(names(values), " "))
	Each(values, func(v Value) {
		if v.Section != nil {
			fmt.Fprintf(&out, "%s: %s\n", v, strings.Join(names(v.Section), " "))
		}
	})
	out.WriteString("{{- end }}\n")
	return []byte(out.String())
}

func names(values []Value) (out []string) {
	for _, v := range values {
		out = append(out, v.Name())
	}
	return out
}
