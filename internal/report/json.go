package report

import (
	"encoding/json"
	"io"
)

// JSON writes a report for programs, indented, with the characters of names as they are.
func JSON(w io.Writer, report any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(report)
}
