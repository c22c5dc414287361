// Package report writes what commands find: lines and tables for people, in the width of their terminal, amounts as an operator reads
// them, and JSON for programs.
package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Width is the number of columns that a report fits by default: those of a terminal that nobody has widened.
const Width = 80

// Page collects the lines of a report. The zero value folds nothing.
type Page struct {
	// Width is the number of columns, in runes; 0 does not fold lines.
	Width int
	text  strings.Builder
}

// Line adds a folded line. Further lines of it have two more columns of indent.
func (p *Page) Line(format string, args ...any) { p.Indented("", fmt.Sprintf(format, args...)) }

// Item adds a folded line of a list.
func (p *Page) Item(format string, args ...any) { p.Indented("  ", fmt.Sprintf(format, args...)) }

// Detail adds a folded line below an item.
func (p *Page) Detail(format string, args ...any) { p.Indented("      ", fmt.Sprintf(format, args...)) }

// Heading adds the title of a section after an empty line.
func (p *Page) Heading(format string, args ...any) {
	p.Blank()
	p.Line(format, args...)
}

// Indented adds a folded line with an indent. Further lines of it have two more columns.
func (p *Page) Indented(indent, text string) { p.Labeled(indent, indent+"  ", text) }

// Labeled adds a folded line that begins with a label. Further lines of it begin with rest.
func (p *Page) Labeled(label, rest, text string) { p.fold(label, rest, wordsOf(text)) }

// wordsOf splits text at spaces. A percent sign stays with its number.
func wordsOf(text string) (out []string) {
	for word := range strings.FieldsSeq(text) {
		if last := len(out) - 1; last >= 0 && strings.HasPrefix(word, "%") {
			out[last] += " " + word
			continue
		}
		out = append(out, word)
	}
	return out
}

// List adds items on one folded line, with commas between them. No line breaks within an item.
func (p *Page) List(indent string, items []string) {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = item + ","
	}
	if last := len(items) - 1; last >= 0 {
		words[last] = items[last]
	}
	p.fold(indent, indent, words)
}

// Printf adds text as it is.
func (p *Page) Printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

// Part returns an empty page of the same width.
func (p *Page) Part() *Page { return &Page{Width: p.Width} }

// Blank adds an empty line.
func (p *Page) Blank() { p.text.WriteByte('\n') }

// fold joins words with spaces, in lines of at most Width. The first begins with first, the others with rest.
func (p *Page) fold(first, rest string, words []string) {
	line, empty := first, true
	for _, word := range words {
		switch {
		case empty:
			line += word
		case p.Width == 0 || utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= p.Width:
			line += " " + word
		default:
			p.raw(line)
			line = rest + word
		}
		empty = false
	}
	p.raw(line)
}

func (p *Page) raw(line string) { p.text.WriteString(strings.TrimRight(line, " ") + "\n") }

// Table adds rows below their columns, all with two columns of indent. Row i is followed by below[i], if there is one: whole lines.
func (p *Page) Table(columns []string, rows [][]string, below ...string) {
	all := append([][]string{columns}, rows...)
	for i, line := range Aligned(all, nil) {
		p.raw("  " + line)
		if i > 0 && i <= len(below) {
			p.text.WriteString(below[i-1])
		}
	}
}

// Section adds a table below its title, and an empty line; nothing if there are no rows.
func (p *Page) Section(title string, columns []string, rows [][]string, below ...string) {
	if len(rows) == 0 {
		return
	}
	p.raw(title)
	p.Table(columns, rows, below...)
	p.Blank()
}

// Aligned returns rows as lines with their cells in columns, two spaces apart, without spaces at the end. Numbers are columns that are
// aligned to the right. All rows have as many cells as the first.
func Aligned(rows [][]string, numbers map[int]bool) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	out := make([]string, 0, len(rows))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			pad := Pad
			if numbers[i] {
				pad = PadLeft
			}
			cells[i] = pad(cell, widths[i])
		}
		out = append(out, strings.TrimRight(strings.Join(cells, "  "), " "))
	}
	return out
}

// Pad adds spaces after text up to n columns.
func Pad(text string, n int) string { return text + spaces(text, n) }

// PadLeft adds spaces before text up to n columns.
func PadLeft(text string, n int) string { return spaces(text, n) + text }

func spaces(text string, n int) string {
	return strings.Repeat(" ", max(0, n-utf8.RuneCountInString(text)))
}

// String returns the lines.
func (p *Page) String() string { return p.text.String() }

// WriteTo writes the lines.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, p.text.String())
	return int64(n), err
}

// PricesLabel begins the line that states where prices come from, in every command.
const PricesLabel = "Prices: "

// Prices prints where prices come from.
func (p *Page) Prices(from string) {
	p.Labeled(PricesLabel, spaces("", len(PricesLabel)), cmp.Or(from, "of an unknown source"))
}

// Source prints where prices come from, after an empty line, and when the cluster was read; files may not state it.
func (p *Page) Source(prices string, at time.Time) {
	p.Blank()
	p.Prices(prices)
	if !at.IsZero() {
		p.Labeled("Read:   ", "", at.Format("2006-01-02 15:04:05 UTC"))
	}
}
