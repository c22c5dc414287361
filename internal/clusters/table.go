package clusters

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// column is a column of a table: text to the left, numbers to the right.
type column struct {
	title string
	left  bool
}

// table is the rows of reports. The first column is the context, which the cells of row and sums lack.
type table[R any] struct {
	columns []column
	row     func(*R) []string
	// sums is the last row; nil for none.
	sums []string
	// prices states where the prices of a report come from; nil for tables without prices.
	prices func(*R) string
}

// write writes a row for each cluster, and a line for each cluster without a report.
func (t table[R]) write(w io.Writer, results []Result[R]) error {
	rows := [][]string{titles(t.columns)}
	for _, r := range results {
		if r.Report != nil {
			rows = append(rows, append([]string{r.Context}, t.row(r.Report)...))
		}
	}
	if t.sums != nil {
		rows = append(rows, append([]string{"all"}, t.sums...))
	}
	var b strings.Builder
	if len(rows) > 1 {
		for _, line := range report.Aligned(printableCells(rows), numbers(t.columns)) {
			b.WriteString(line + "\n")
		}
	}
	for _, from := range t.sources(results) {
		fmt.Fprintf(&b, "\n%s%s\n", report.PricesLabel, printable(from))
	}
	if failed := Failed(results); failed > 0 {
		fmt.Fprintf(&b, "\nNot read: %d of %d clusters\n", failed, len(results))
		for _, r := range results {
			if r.Report == nil {
				fmt.Fprintf(&b, "  %s: %s\n", printable(r.Context), printable(strings.Join(strings.Fields(r.Error), " ")))
			}
		}
	}
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// sources returns where prices come from, each once.
func (t table[R]) sources(results []Result[R]) (out []string) {
	known := map[string]bool{}
	for _, r := range results {
		if r.Report == nil || t.prices == nil {
			continue
		}
		if from := t.prices(r.Report); from != "" && !known[from] {
			known[from] = true
			out = append(out, from)
		}
	}
	return out
}

// printable is text of kubeconfig files and objects, which must not begin a row of its own.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, text)
}

// printableCells are the rows with cells that are safe to print.
func printableCells(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			row[i] = printable(row[i])
		}
	}
	return rows
}

// numbers are the columns that are aligned to the right.
func numbers(columns []column) map[int]bool {
	out := map[int]bool{}
	for i, c := range columns {
		out[i] = !c.left
	}
	return out
}

func titles(columns []column) (out []string) {
	for _, c := range columns {
		out = append(out, c.title)
	}
	return out
}
