package screen

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Painter writes lines that replace one another on a terminal, and plain lines elsewhere. It is for one
// goroutine at a time.
type Painter struct {
	out   io.Writer
	size  func() (width, height int) // nil = not a terminal
	drawn []string                   // lines on the screen that the next Paint replaces
}

// NewPainter returns a painter on out. It redraws in place if out is a terminal, unless the environment
// states NO_COLOR or that the terminal is dumb.
func NewPainter(out io.Writer, getenv func(string) string) *Painter {
	p := &Painter{out: out}
	file, ok := out.(*os.File)
	if ok && term.IsTerminal(int(file.Fd())) && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" {
		p.size = func() (int, int) {
			width, height, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 80, 24
			}
			return width, height
		}
	}
	return p
}

// InPlace reports whether Paint replaces what it painted before.
func (p *Painter) InPlace() bool { return p.size != nil }

// Print writes lines that stay.
func (p *Painter) Print(lines ...string) {
	p.erase()
	for _, line := range lines {
		fmt.Fprintln(p.out, line)
	}
}

// Paint replaces the lines that were painted last. Lines too long for the terminal are cut, and so are
// those that do not fit below one another. It is for terminals only.
func (p *Painter) Paint(lines []string) {
	width, height := p.size()
	var fit []string
	for _, line := range lines[:min(len(lines), max(1, height-1))] {
		fit = append(fit, truncate(line, width))
	}
	if slices.Equal(fit, p.drawn) {
		return
	}
	p.erase()
	for _, line := range fit {
		fmt.Fprintln(p.out, line)
	}
	p.drawn = fit
}

// Keep lets what was painted last stay on the screen.
func (p *Painter) Keep() { p.drawn = nil }

func (p *Painter) erase() {
	if len(p.drawn) > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", len(p.drawn))
		p.drawn = nil
	}
}

// truncate shortens a line to a number of columns.
func truncate(line string, width int) string {
	runes := []rune(strings.TrimRight(line, " "))
	if len(runes) <= width || width < 2 {
		return string(runes)
	}
	return string(runes[:width-1]) + "…"
}
