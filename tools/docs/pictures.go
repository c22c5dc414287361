package docs

import (
	"fmt"
	"html"
	"strings"
)

// Measures of pictures, in pixels. A letter of the font takes at most 8 pixels at its size of 14.
const (
	boxWidth, boxHeight  = 190, 74
	gapX, gapY, margin   = 70, 56, 20
	firstLine, lineSteps = 28, 18
)

// box is a node of a picture, in a cell of its grid.
type box struct {
	column, row int
	// title is in bold; each line below has at most 25 letters.
	title string
	lines []string
	// emphasis marks what Dovetail itself does.
	emphasis bool
}

// arrow leads from one box to another, by their indexes.
type arrow struct {
	from, to int
	label    string
}

// picture is a drawing of boxes and arrows, with a text for those who cannot see it.
type picture struct {
	description string
	boxes       []box
	arrows      []arrow
}

// pictures are those of docs/concepts.md, by their path.
func pictures() map[string]string {
	return map[string]string{
		"docs/pictures/overview.svg": picture{
			"Pending pods go to Dovetail, which plans and creates NodeClaims. EC2 launches an instance for each. It joins as a node, " +
				"and the scheduler binds the pods.",
			[]box{
				{0, 0, "Pending pods", []string{"the scheduler found", "no node for them"}, false},
				{1, 0, "Plan", []string{"cheapest nodes for all", "pods of the batch"}, true},
				{2, 0, "NodeClaim", []string{"one for each node,", "lists its pods"}, true},
				{2, 1, "EC2 instance", []string{"type and zone that EC2", "has, at least price"}, false},
				{1, 1, "Node", []string{"joins, becomes Ready"}, false},
				{0, 1, "Running pods", []string{"bound by the scheduler"}, false},
			},
			[]arrow{{0, 1, "batch"}, {1, 2, "create"}, {2, 3, "CreateFleet"}, {3, 4, "join"}, {4, 5, "bind"}},
		}.svg(),
		"docs/pictures/nodeclaim.svg": picture{
			"A NodeClaim is created, launched, registered and initialized. It may be drifted, expired, empty or interrupted; then it " +
				"drains and is deleted.",
			[]box{
				{0, 0, "Created", []string{"finalizer set"}, true},
				{1, 0, "Launched", []string{"the instance exists"}, true},
				{2, 0, "Registered", []string{"the node exists"}, true},
				{2, 1, "Initialized", []string{"Ready, no startup taint,", "devices registered"}, true},
				{1, 1, "Draining", []string{"empty, underutilized,", "drifted, expired, ..."}, true},
				{0, 1, "Deleted", []string{"the instance is", "terminated"}, true},
			},
			[]arrow{{0, 1, ""}, {1, 2, ""}, {2, 3, ""}, {3, 4, ""}, {4, 5, ""}},
		}.svg(),
		"docs/pictures/disruption.svg": picture{
			"Disruption finds candidates, simulates their removal, waits 15 seconds, launches replacements, waits until they are " +
				"initialized, then drains the old nodes.",
			[]box{
				{0, 0, "Candidates", []string{"nodes that may be", "disrupted now"}, true},
				{1, 0, "Simulation", []string{"do their pods fit", "elsewhere, for less?"}, true},
				{2, 0, "Proposal", []string{"must stay valid", "for 15 s"}, true},
				{2, 1, "Replacements", []string{"launched, where pods", "need them"}, true},
				{1, 1, "Initialized", []string{"else: rollback, the", "old nodes stay"}, true},
				{0, 1, "Drain", []string{"respects budgets, then", "terminates"}, true},
			},
			[]arrow{{0, 1, ""}, {1, 2, "saves"}, {2, 3, "valid"}, {3, 4, "wait"}, {4, 5, "all up"}},
		}.svg(),
	}
}

// svg draws the picture. Its colors suit light and dark pages.
func (p picture) svg() string {
	columns, rows := 0, 0
	for _, b := range p.boxes {
		columns, rows = max(columns, b.column+1), max(rows, b.row+1)
	}
	width, height := columns*(boxWidth+gapX)-gapX+2*margin, rows*(boxHeight+gapY)-gapY+2*margin
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" `, width, height, width, height)
	out.WriteString(`font-family="system-ui, sans-serif" font-size="14">` + "\n")
	fmt.Fprintf(&out, "<title>%s</title>\n", html.EscapeString(p.description))
	out.WriteString("<!-- Made from tools/docs/pictures.go by \"make generate\". -->\n" +
		`<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">` +
		`<path d="M0 0 L10 5 L0 10 z" fill="#64748b"/></marker></defs>` + "\n")
	fmt.Fprintf(&out, `<rect width="%d" height="%d" rx="10" fill="#ffffff"/>`+"\n", width, height)
	for _, a := range p.arrows {
		out.WriteString(a.draw(p.boxes[a.from], p.boxes[a.to]))
	}
	for _, b := range p.boxes {
		out.WriteString(b.draw())
	}
	return out.String() + "</svg>\n"
}

// corner is the upper left corner of a box.
func (b box) corner() (x, y int) {
	return margin + b.column*(boxWidth+gapX), margin + b.row*(boxHeight+gapY)
}

func (b box) draw() string {
	fill, stroke := "#f1f5f9", "#94a3b8"
	if b.emphasis {
		fill, stroke = "#dbeafe", "#2563eb"
	}
	x, y := b.corner()
	var out strings.Builder
	fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%d" height="%d" rx="8" fill="%s" stroke="%s"/>`+"\n", x, y, boxWidth, boxHeight, fill, stroke)
	for i, line := range append([]string{b.title}, b.lines...) {
		weight := ""
		if i == 0 {
			weight = ` font-weight="bold"`
		}
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="middle" fill="#0f172a"%s>%s</text>`+"\n",
			x+boxWidth/2, y+firstLine-4+i*lineSteps, weight, html.EscapeString(line))
	}
	return out.String()
}

// draw draws an arrow between the sides of two boxes that face each other: in one row, or in one column.
func (a arrow) draw(from, to box) string {
	x1, y1 := from.corner()
	x2, y2 := to.corner()
	switch {
	case from.column < to.column:
		x1, y1, y2 = x1+boxWidth, y1+boxHeight/2, y2+boxHeight/2
	case from.column > to.column:
		x2, y1, y2 = x2+boxWidth, y1+boxHeight/2, y2+boxHeight/2
	default:
		x1, x2, y1 = x1+boxWidth/2, x2+boxWidth/2, y1+boxHeight
	}
	labelX, labelY, anchor := (x1+x2)/2, (y1+y2)/2-8, "middle"
	if x1 == x2 {
		labelX, labelY, anchor = x1-10, (y1+y2)/2+5, "end"
	}
	line := fmt.Sprintf(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#64748b" stroke-width="1.5" marker-end="url(#tip)"/>`+"\n", x1, y1, x2, y2)
	if a.label == "" {
		return line
	}
	return line + fmt.Sprintf(`<text x="%d" y="%d" text-anchor="%s" fill="#475569" font-size="12">%s</text>`+"\n",
		labelX, labelY, anchor, html.EscapeString(a.label))
}
