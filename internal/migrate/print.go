package migrate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Text writes a line for each result, and one with the counts. With a width, lines of more columns are folded.
func (r Report) Text(w io.Writer, width int) error {
	p := report.Page{Width: width}
	const indent = "             "
	for _, result := range r.Results {
		line := strings.TrimSpace(result.Object + " " + result.Field)
		if line != "" {
			line += ": "
		}
		line += shortened(result.Seen)
		if result.Remedy != "" {
			line += "; do: " + result.Remedy
		}
		p.Labeled(fmt.Sprintf("%-11s  %-17s  ", result.Status, result.Check), indent, line)
	}
	p.Line("%s, %s, %d not checked", report.Plural(r.Count(Obstacle), "obstacle"),
		report.Plural(r.Count(Warning), "warning"), r.Count(NotChecked))
	_, err := p.WriteTo(w)
	return err
}

// shownRunes sets how much of a text is printed: values of fields are in it, and may be user data.
const shownRunes = 1000

func shortened(text string) string {
	runes := []rune(text)
	if len(runes) <= shownRunes {
		return text
	}
	return string(runes[:shownRunes]) + fmt.Sprintf("... (%d more characters: see -o json)", len(runes)-shownRunes)
}

// oneLine is text of an object as a part of one line: neither a comment nor a step can end in it, and begin a line of its own.
func oneLine(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return strconv.Quote(text)
	}
	return text
}
