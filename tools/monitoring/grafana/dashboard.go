// Package grafana builds Grafana dashboards from Go values: panels with queries, in rows of 24 columns.
//
// The JSON is the schema of Grafana 10 and later. A panel is described by what it shows; how Grafana draws that is the same for all
// panels of a kind, so that they look alike.
package grafana

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// Dashboard is one page of panels.
type Dashboard struct {
	// UID identifies the dashboard in links; at most 40 characters.
	UID, Title, Description string
	// From is how far back the page reaches at first, such as now-6h.
	From      string
	Variables []Variable
	Links     []Link
	Rows      []Row
}

// Link leads to another dashboard, with the variables and times of this one.
type Link struct{ Title, UID string }

// Row is a heading and the panels below it, which fill lines of 24 columns from the left. The first row of a page has no heading.
type Row struct {
	Title string
	// Height of each panel, in units of 30 pixels.
	Height int
	// Collapsed rows show their panels, and make their queries, only when they are opened.
	Collapsed bool
	Panels    []Panel
}

// Variable is a choice at the top of the page.
type Variable struct {
	Name, Label string
	// Query lists the values, such as label_values(METRIC, LABEL). Empty for the variable of the data source.
	Query string
}

// Kind is how a panel draws its series.
type Kind string

// The kinds of panels that the dashboards use.
const (
	Stat       Kind = "stat"
	TimeSeries Kind = "timeseries"
	BarGauge   Kind = "bargauge"
	Table      Kind = "table"
)

// Unit is Grafana's ID of a unit.
type Unit string

// The units that the dashboards use.
const (
	Count      Unit = "short"
	Seconds    Unit = "s"
	Bytes      Unit = "bytes"
	Ratio      Unit = "percentunit" // 1 is 100 %
	Percent    Unit = "percent"     // 100 is 100 %
	Dollars    Unit = "currencyUSD"
	PerSecond  Unit = "reqps" // requests
	Operations Unit = "ops"
	Cores      Unit = "none"
)

// Panel shows the results of queries.
type Panel struct {
	Kind  Kind
	Title string
	// Description states what is shown, and what to do when it is bad.
	Description string
	Unit        Unit
	// Width in columns; a line has 24.
	Width   int
	Queries []Query
	// Steps color a value by its size; without them it has the color of its series.
	Steps []Step
	// Stacked adds the series up. Bars draws events, stacked, over at least BarInterval each.
	Stacked, Bars bool
	// Colors of series by their names.
	Colors []Color
	// Min and Max of the axis or bar; automatic if nil.
	Min, Max *float64
	// Decimals of values; automatic if nil.
	Decimals *int
	// Empty is shown when there is no series.
	Empty string
	// Columns of a table, in their order. Other labels are not shown.
	Columns []Column
}

// Query is a PromQL expression with the name of its series: text with labels, such as {{nodepool}}.
type Query struct{ Expr, Legend string }

// Step is the color of values from a bound on. The first step of a panel has no bound.
type Step struct {
	From  float64
	Color string
}

// Color is the color of the series with a name.
type Color struct{ Series, Color string }

// Column is a column of a table. Field is a label, or ValueColumn of a query.
type Column struct {
	Field, Title string
	// Unit of a value; empty for labels.
	Unit Unit
	// Steps color the cell.
	Steps []Step
}

// ValueColumn is the field with the values of the nth query of a table with so many queries.
func ValueColumn(n, of int) string {
	if of == 1 {
		return "Value"
	}
	return "Value #" + refID(n)
}

// BarInterval is the least time between two bars: longer than several scrapes, so that the increase of a counter is that of the bar.
const BarInterval = 2 * time.Minute

// columns is how many columns a line has.
const columns = 24

// refID is the ID of the nth query.
func refID(n int) string { return string(rune('A' + n)) }

// Placed is a panel with its place on the page.
type Placed struct {
	Panel
	X, Y, Height int
}

// Heading is the title of a row with its place, and its panels if it is collapsed.
type Heading struct {
	Title  string
	Y      int
	Hidden []Placed
}

// Layout places the panels: each line has the height of its row, and a heading has the height 1. The panels of collapsed rows take
// no place.
func (d Dashboard) Layout() (panels []Placed, headings []Heading, height int) {
	y := 0
	for _, row := range d.Rows {
		if row.Title != "" {
			headings = append(headings, Heading{Title: row.Title, Y: y})
			y++
		}
		placed, end := row.layout(y)
		if row.Collapsed {
			headings[len(headings)-1].Hidden = placed
			continue
		}
		panels, y = append(panels, placed...), end
	}
	return panels, headings, y
}

// Panels are all panels, also those of collapsed rows.
func (d Dashboard) Panels() []Panel {
	var out []Panel
	for _, row := range d.Rows {
		out = append(out, row.Panels...)
	}
	return out
}

// layout places the panels of a row from a height on, and returns where they are over.
func (r Row) layout(y int) (out []Placed, end int) {
	x := 0
	for _, p := range r.Panels {
		if x+p.Width > columns {
			x, y = 0, y+r.Height
		}
		out = append(out, Placed{p, x, y, r.Height})
		x += p.Width
	}
	return out, y + r.Height
}

// JSON is the dashboard as a file that Grafana imports. Equal dashboards have equal bytes.
func (d Dashboard) JSON() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // queries have < and >
	e.SetIndent("", "  ")
	if err := e.Encode(d.model()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Fill replaces the labels in the name of a series by their values.
func (q Query) Fill(label func(string) string) string {
	var out strings.Builder
	rest := q.Legend
	for {
		before, after, found := strings.Cut(rest, "{{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, _ := strings.Cut(after, "}}")
		out.WriteString(label(strings.TrimSpace(name)))
		rest = after
	}
}
