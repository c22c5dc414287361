package top

import (
	"math"
	"strings"
)

// style is the parameters of an SGR control sequence. The sixteen colors of the terminal's own palette fit light and dark
// backgrounds alike; without color, glyphs and words carry the same meaning.
type style string

// The styles. States have the hues of the console.
const (
	plain   style = ""
	bold    style = "1"
	faint   style = "90"
	reverse style = "7"
	accent  style = "1;36"
	good    style = "32"
	warn    style = "33"
	bad     style = "31"
	filled  style = "37"
	full    style = "34"
)

func (s State) style() style {
	return map[State]style{
		Draining: "38;5;208", InFlight: "94", NotReady: "91", Planned: "32", Drifted: "33", Blocked: "35", Steady: faint,
	}[s]
}

// span is text in one style.
type span struct {
	style
	text string
}

// line is one line of the screen.
type line []span

func (l *line) add(s style, text string) { *l = append(*l, span{s, clean(text)}) }

// width returns how many columns the line takes.
func (l line) width() (sum int) {
	for _, s := range l {
		sum += width(s.text)
	}
	return sum
}

// render makes the line exactly n columns wide. A selected line is reversed as a whole.
func (l line) render(n int, selected bool) string {
	var b strings.Builder
	left := n
	for _, s := range l {
		text := cut(s.text, left)
		left -= width(text)
		write(&b, s.style, text, selected)
		if left <= 0 {
			break
		}
	}
	if left > 0 && selected {
		write(&b, plain, strings.Repeat(" ", left), selected)
	}
	return b.String()
}

func write(b *strings.Builder, s style, text string, selected bool) {
	if selected {
		s = reverse
	}
	if s == plain || text == "" {
		b.WriteString(text)
		return
	}
	b.WriteString("\x1b[" + string(s) + "m" + text + "\x1b[m")
}

// text is the line without styles, and without spaces at its end.
func (l line) text() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return strings.TrimRight(b.String(), " ")
}

// eighths are the blocks that fill a part of a column.
var eighths = []rune(" ▏▎▍▌▋▊▉")

// bar shows a share as a bar of n columns. A used share that is not negative is a tick on it. A bar that is not empty has at
// least its first eighth.
func bar(requested, used float64, n int) line {
	requested = min(max(requested, 0), 1)
	steps := int(math.Round(requested * float64(8*n)))
	if requested > 0 {
		steps = max(steps, 1)
	}
	tick := -1
	if used >= 0 && n > 0 {
		tick = min(int(used*float64(n)), n-1)
	}
	color := filled
	if requested >= 0.95 {
		color = full
	}
	var out line
	for i := range n {
		part := min(max(steps-8*i, 0), 8)
		switch {
		case i == tick:
			out = append(out, span{warn, "┃"})
		case part == 8:
			out = append(out, span{color, "█"})
		case part > 0:
			out = append(out, span{color, string(eighths[part])})
		default:
			out = append(out, span{faint, "·"})
		}
	}
	return merged(out)
}

// merged joins neighbors of one style: a screen of bars then takes a quarter of the bytes.
func merged(l line) (out line) {
	for _, s := range l {
		if last := len(out) - 1; last >= 0 && out[last].style == s.style {
			out[last].text += s.text
			continue
		}
		out = append(out, s)
	}
	return out
}
