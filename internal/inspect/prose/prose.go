// Package prose prints reports for people: folded lines, aligned tables, and amounts as an operator reads them.
package prose

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Width is the number of columns that a report fits by default: those of a terminal that nobody has widened.
const Width = 80

// Page collects the lines of a report. The zero value folds nothing.
type Page struct {
	// Width is the number of columns; 0 does not fold lines.
	Width int
	text  strings.Builder
}

// Line adds a folded line. Further lines of it have two more columns of indent.
func (p *Page) Line(format string, args ...any) { p.fold("", fmt.Sprintf(format, args...)) }

// Item adds a folded line of a list.
func (p *Page) Item(format string, args ...any) { p.fold("  ", fmt.Sprintf(format, args...)) }

// Detail adds a folded line below an item.
func (p *Page) Detail(format string, args ...any) { p.fold("      ", fmt.Sprintf(format, args...)) }

// Heading adds the title of a section after an empty line.
func (p *Page) Heading(format string, args ...any) {
	p.text.WriteString("\n")
	p.fold("", fmt.Sprintf(format, args...))
}

// fold breaks text at spaces into lines of at most Width.
func (p *Page) fold(indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		switch {
		case strings.TrimSpace(line) == "":
			line += word
		case p.Width == 0 || len(line)+1+len(word) <= p.Width:
			line += " " + word
		default:
			p.text.WriteString(line + "\n")
			line = indent + "  " + word
		}
	}
	p.text.WriteString(strings.TrimRight(line, " ") + "\n")
}

// Table adds rows below their columns, all with two columns of indent.
func (p *Page) Table(columns []string, rows [][]string) {
	widths := make([]int, len(columns))
	for _, row := range append([][]string{columns}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range append([][]string{columns}, rows...) {
		line := " "
		for i, cell := range row {
			line += " " + cell + strings.Repeat(" ", widths[i]-len(cell)+1)
		}
		p.text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// WriteTo writes the lines.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, p.text.String())
	return int64(n), err
}

// Source prints where prices come from, and when the cluster was read; files may not tell.
func (p *Page) Source(prices string, at time.Time) {
	text := "Prices are of " + cmp.Or(prices, "an unknown source")
	if !at.IsZero() {
		text += "; read at " + at.Format("2006-01-02 15:04:05 UTC")
	}
	p.Heading("%s", text)
}

// Dollars prints a price per hour in up to four decimals, and at least two.
func Dollars(price float64) string {
	text := strconv.FormatFloat(price, 'f', 4, 64)
	text = strings.TrimSuffix(strings.TrimSuffix(text, "0"), "0")
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	return sign + "$" + text
}

// Percent is a share in whole percent, rounded down: what is not full is not 100.
func Percent(share float64) int { return int(100*share + 1e-9) }

// Plural prints a number with its noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Time prints an instant in UTC: the time of day, and the day as well if it is not that of now.
func Time(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04") + " UTC"
	}
	return at.Format("2006-01-02 15:04") + " UTC"
}

// Age prints a duration in its two largest units: 3d4h, 5h12m, 7m30s, 12s.
func Age(d time.Duration) string {
	d = max(d, 0)
	days := d / (24 * time.Hour)
	units := []struct {
		n    int64
		unit string
	}{
		{int64(days), "d"},
		{int64(d/time.Hour) % 24, "h"},
		{int64(d/time.Minute) % 60, "m"},
		{int64(d/time.Second) % 60, "s"},
	}
	for i, u := range units {
		if u.n == 0 {
			continue
		}
		out := strconv.FormatInt(u.n, 10) + u.unit
		if i+1 < len(units) && units[i+1].n > 0 {
			out += strconv.FormatInt(units[i+1].n, 10) + units[i+1].unit
		}
		return out
	}
	return "0s"
}

// Duration prints a duration without units that are zero: 720h, 1h30m, 45s.
func Duration(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}
