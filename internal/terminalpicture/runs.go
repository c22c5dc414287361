package terminalpicture

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// run is letters of one style side by side.
type run struct {
	pen
	text          string
	column, width int
}

// pen is the style that SGR control sequences have set (ECMA-48, section 8.3.117).
type pen struct {
	color         string // of the foreground; empty for the default
	bold, reverse bool
}

// colors returns those of letters and, if it is not the picture's, of what is under them.
func (p pen) colors() (fill, under string) {
	fill = foreground
	if p.color != "" {
		fill = p.color
	}
	if p.reverse {
		return background, fill
	}
	return fill, ""
}

// runs splits a line by style. Spaces of two and more part runs too, so that columns are aligned in any font, and so do block
// elements, which are drawn as boxes.
func runs(line string) (out []run) {
	var at pen
	column, state := 0, byte(0)
	for len(line) > 0 {
		sequence, width, n, next := ansi.DecodeSequence(line, state, nil)
		state, line = next, line[n:]
		switch {
		case width > 0:
			last := len(out) - 1
			if last >= 0 && out[last].pen == at && joins(out[last].text, sequence) {
				out[last].text += sequence
				out[last].width += width
			} else {
				out = append(out, run{at, sequence, column, width})
			}
			column += width
		case strings.HasPrefix(sequence, "\x1b[") && strings.HasSuffix(sequence, "m"):
			at.apply(sequence[2 : len(sequence)-1])
		}
	}
	return out
}

// joins reports whether a letter belongs to the run that finishes before it.
func joins(before, letter string) bool {
	_, isBlock := block(letter)
	_, afterBlock := block(before)
	if isBlock || afterBlock {
		return letter == "█" && strings.HasSuffix(before, letter)
	}
	return !strings.HasSuffix(before, "  ") || letter == " "
}

// apply sets the style by the parameters of a control sequence. It knows those that the commands use.
func (p *pen) apply(parameters string) {
	codes := strings.Split(parameters, ";")
	for i := 0; i < len(codes); i++ {
		code, _ := strconv.Atoi(codes[i]) // an empty parameter is 0
		switch {
		case code == 0:
			*p = pen{}
		case code == 1:
			p.bold = true
		case code == 7:
			p.reverse = true
		case code >= 30 && code <= 37:
			p.color = palette[code-30]
		case code >= 90 && code <= 97:
			p.color = palette[code-90+8]
		case code == 38 && i+2 < len(codes) && codes[i+1] == "5":
			index, _ := strconv.Atoi(codes[i+2])
			p.color, i = indexed(index), i+2
		}
	}
}

// palette are the sixteen colors of a terminal, first the eight normal ones, then the bright ones.
var palette = [16]string{
	"#3b4252", "#f27878", "#7ccf8a", "#e6c15c", "#6ea8fe", "#c792ea", "#5fd3d3", "#aab4c3",
	"#8b95a5", "#ff8f8f", "#96e0a2", "#f2d27c", "#8fbcff", "#d8aef5", "#7fe3e3", "#eef1f6",
}

// indexed is a color of the palette of 256: the sixteen, a cube of six steps by channel, and grays. It is empty for what is no
// index.
func indexed(i int) string {
	step := func(n int) int {
		if n == 0 {
			return 0
		}
		return 55 + 40*n
	}
	switch {
	case i < 0 || i > 255:
		return ""
	case i < 16:
		return palette[i]
	case i < 232:
		i -= 16
		return fmt.Sprintf("#%02x%02x%02x", step(i/36), step(i/6%6), step(i%6))
	}
	gray := 8 + 10*(i-232)
	return fmt.Sprintf("#%02x%02x%02x", gray, gray, gray)
}
