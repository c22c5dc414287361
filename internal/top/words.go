package top

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// dollars is an hourly price.
func dollars(v float64) string { return amount(v) + "/h" }

func amount(v float64) string { return report.Dollars(v) }

// monthly is an hourly price, by month.
func monthly(v float64) string {
	return report.Grouped(v*report.HoursPerMonth, 0) + "/month"
}

// priced is the hourly price of several nodes, of which some may have none that is known.
func priced(sum float64, unpriced int) string {
	switch {
	case unpriced == 0:
		return dollars(sum)
	case sum == 0:
		return "price not known"
	}
	return fmt.Sprintf("%s + %d unpriced", dollars(sum), unpriced)
}

// price is the price of a node; "?" if the catalog has none.
func price(v *float64) string {
	if v == nil {
		return "?"
	}
	return report.Amount(*v)
}

func cores(millis int64) string {
	if millis%1000 == 0 || millis >= 100_000 {
		return fmt.Sprintf("%d", (millis+500)/1000)
	}
	return fmt.Sprintf("%.1f", float64(millis)/1000)
}

func bytesOf(n int64) string {
	const gi = 1 << 30
	switch {
	case n >= 1<<50:
		return fmt.Sprintf("%.1fPi", float64(n)/(1<<50))
	case n >= 10<<40:
		return fmt.Sprintf("%.1fTi", float64(n)/(1<<40))
	case n >= 10*gi:
		return fmt.Sprintf("%.0fGi", float64(n)/gi)
	case n >= gi:
		return fmt.Sprintf("%.1fGi", float64(n)/gi)
	}
	return fmt.Sprintf("%dMi", n>>20)
}

// age returns how long ago something was, as kubectl prints it. A clock that is behind the API server's makes no negative age.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "?"
	}
	return duration.ShortHumanDuration(max(0, now.Sub(then)))
}

// clean makes text of objects safe for a terminal. Whatever could move the cursor, change modes, reorder text or have a
// width that terminals disagree about is replaced.
func clean(s string) string {
	if printable(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.In(r, unicode.M, unicode.Co) || joins(r):
			b.WriteByte('?')
		case unicode.In(r, unicode.Zs):
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// joins reports whether terminals disagree about the width of the rune beside others: conjoining letters of Hangul, regional
// indicators and modifiers of emoji.
func joins(r rune) bool {
	return r >= 0x1100 && r <= 0x11ff || r >= 0xd7b0 && r <= 0xd7ff || r >= 0x1f1e6 && r <= 0x1f1ff || r >= 0x1f3fb && r <= 0x1f3ff
}

// printable reports whether the text is printable ASCII, as names of Kubernetes are.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// width returns how many columns clean text takes.
func width(s string) int {
	if printable(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// cut shortens clean text to at most n columns, with an ellipsis.
func cut(s string, n int) string {
	if n <= 0 {
		return ""
	}
	if width(s) <= n {
		return s
	}
	return ansi.Truncate(s, n, "…")
}

// pad makes clean text exactly n columns wide.
func pad(s string, n int) string {
	s = cut(s, n)
	return s + strings.Repeat(" ", max(0, n-width(s)))
}

// padLeft is pad, aligned right.
func padLeft(s string, n int) string {
	s = cut(s, n)
	return strings.Repeat(" ", max(0, n-width(s))) + s
}

// wrapped breaks text at spaces into lines of at most n columns.
func wrapped(s string, n int) []string {
	n = max(n, 10)
	var out []string
	line := ""
	for _, word := range strings.Fields(s) {
		for width(word) > n {
			head := ansi.Truncate(word, n, "")
			if line != "" {
				out, line = append(out, line), ""
			}
			out, word = append(out, head), strings.TrimPrefix(word, head)
		}
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= n:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}
