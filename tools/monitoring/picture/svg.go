package picture

import (
	"fmt"
	"html"
	"strings"
)

// canvas collects the elements of an SVG.
type canvas struct{ out strings.Builder }

// box is a rectangle in pixels.
type box struct{ x, y, w, h float64 }

// inner is the box without a margin.
func (b box) inner(top, right, bottom, left float64) box {
	return box{b.x + left, b.y + top, b.w - left - right, b.h - top - bottom}
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.out, format+"\n", args...) }

// rect draws a filled rectangle, with further attributes.
func (c *canvas) rect(b box, fill, attributes string) {
	c.add(`<rect x="%s" y="%s" width="%s" height="%s" fill="%s" %s/>`, num(b.x), num(b.y), num(b.w), num(b.h), fill, attributes)
}

// line draws a line.
func (c *canvas) line(x1, y1, x2, y2 float64) {
	c.add(`<path d="M%s %sL%s %s" class="g"/>`, num(x1), num(y1), num(x2), num(y2))
}

// text writes a text of a class, which begins, is centered or finishes at x: anchor is start, middle or end.
func (c *canvas) text(at [2]float64, class, anchor, text string) {
	c.add(`<text x="%s" y="%s" class="%s" text-anchor="%s">%s</text>`, num(at[0]), num(at[1]), class, anchor, html.EscapeString(text))
}

// colored writes a text in a color.
func (c *canvas) colored(at [2]float64, class, color, text string) {
	c.add(`<text x="%s" y="%s" class="%s" style="fill:%s">%s</text>`, num(at[0]), num(at[1]), class, color, html.EscapeString(text))
}

// num is a coordinate with a digit after the point at most.
func num(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

// charWidth is the average width of a character in a font of a pixel: measured with DejaVu Sans over the titles of the dashboards.
const charWidth = 0.56

// width is about how wide a text is in a font of so many pixels.
func width(text string, size float64) float64 { return float64(len([]rune(text))) * size * charWidth }

// fit shortens a text to a width in a font of so many pixels.
func fit(text string, size, most float64) string {
	n := int(most / (size * charWidth))
	if r := []rune(text); len(r) > n {
		return string(r[:max(n-1, 0)]) + "…"
	}
	return text
}

// path is a line through points, with relative coordinates to save space. A gap begins a new line.
type path struct {
	d       strings.Builder
	x, y    float64
	drawing bool
}

func (p *path) to(x, y float64) {
	x, y = round(x), round(y)
	if p.drawing {
		fmt.Fprintf(&p.d, "l%s %s", num(x-p.x), num(y-p.y))
	} else {
		fmt.Fprintf(&p.d, "M%s %s", num(x), num(y))
	}
	p.x, p.y, p.drawing = x, y, true
}

func (p *path) gap() { p.drawing = false }

// round keeps coordinates at a tenth, so that relative ones do not add up errors.
func round(v float64) float64 { return float64(int(v*10+0.5)) / 10 }
