// Package terminalpicture draws what a command prints in a terminal as an SVG, for the documentation. Tests make the pictures, so
// they show what the commands print today.
package terminalpicture

import (
	"fmt"
	"html"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Measures in pixels. Each run of letters is stretched to its columns, so that any monospaced font is aligned.
const (
	cellWidth, cellHeight = 8.4, 18
	fontSize, baseline    = 14, 13
	margin, titleHeight   = 16, 34
)

// Colors of the picture. They have a contrast of at least 4.5 against the background (WCAG 2.1, level AA), but for decoration.
const (
	background = "#14171c"
	frame      = "#2a2f38"
	foreground = "#d6dbe3"
)

// Picture describes what a terminal shows.
type Picture struct {
	// Command is the title of the window; Description is for those who cannot see the picture.
	Command, Description string
	// Screen is the text with SGR control sequences. Other control sequences are left out.
	Screen string
	// Columns is the width of the terminal, which breaks longer lines.
	Columns int
}

// SVG draws the picture.
func (p Picture) SVG() []byte {
	lines := strings.Split(ansi.Hardwrap(strings.TrimRight(p.Screen, "\n"), p.Columns, true), "\n")
	width := 2*margin + float64(p.Columns)*cellWidth
	height := titleHeight + margin + len(lines)*cellHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>%s</desc>\n", html.EscapeString(p.Command), html.EscapeString(p.Description))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s" stroke="%s"/>`+"\n", background, frame)
	fmt.Fprintf(&b, `<path d="M0 %d.5H%.0f" stroke="%s"/>`+"\n", titleHeight-8, width, frame)
	fmt.Fprintf(&b, `<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="%d" fill="%s">`+"\n",
		fontSize, foreground)
	fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="12" fill="#98a1af" xml:space="preserve">$ %s</text>`+"\n",
		margin, 17, html.EscapeString(p.Command))
	for i, l := range lines {
		drawLine(&b, l, titleHeight+i*cellHeight)
	}
	b.WriteString("</g>\n</svg>\n")
	return []byte(b.String())
}

// drawLine draws one line with cells that begin at y.
func drawLine(b *strings.Builder, text string, y int) {
	for _, r := range runs(text) {
		x := margin + float64(r.column)*cellWidth
		w := float64(r.width) * cellWidth
		fill, under := r.pen.colors()
		if under != "" {
			fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" shape-rendering="crispEdges"/>`, x, y, w, cellHeight, under)
		}
		if share, is := block(r.text); is {
			fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" shape-rendering="crispEdges"/>`+"\n", x, y+3, w*share, cellHeight-6, fill)
			continue
		}
		if strings.TrimSpace(r.text) == "" {
			continue
		}
		weight, color := "", ""
		if r.pen.bold {
			weight = ` font-weight="600"`
		}
		if fill != foreground {
			color = fmt.Sprintf(` fill="%s"`, fill)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs" xml:space="preserve"%s%s>%s</text>`+"\n",
			x, y+baseline, w, weight, color, html.EscapeString(r.text))
	}
}

// block is the share of its cells that a run of block elements fills from the left. Fonts draw them with gaps.
func block(text string) (share float64, is bool) {
	const eighths = "▏▎▍▌▋▊▉█"
	for i, r := range []rune(eighths) {
		if strings.Trim(text, string(r)) == "" && text != "" {
			return float64(i+1) / 8, true
		}
	}
	return 0, false
}
