package main

import (
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/dashboards"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
)

// A panel states what it shows, in which unit, and what to do when it is bad.
func TestPanelsExplainThemselves(t *testing.T) {
	for _, d := range dashboards.All() {
		titles := map[string]bool{}
		for _, p := range d.Panels() {
			where := d.Title + ", " + p.Title
			switch {
			case p.Title == "" || titles[p.Title]:
				t.Errorf("%s: the title is not unique on its dashboard", where)
			case p.Unit == "":
				t.Errorf("%s has no unit", where)
			case len(p.Description) < 60 || !strings.HasSuffix(p.Description, ".") || strings.Count(p.Description, ".") < 2:
				t.Errorf("%s: the description does not state what is shown and what to do: %q", where, p.Description)
			case len(p.Queries) == 0 || p.Width < 1 || p.Width > 24:
				t.Errorf("%s has %d queries and a width of %d", where, len(p.Queries), p.Width)
			case (p.Kind == grafana.Table) != (len(p.Columns) > 0):
				t.Errorf("%s: only tables have columns", where)
			}
			titles[p.Title] = true
		}
	}
}

// Grafana needs unique IDs, and dashboards link to one another by them.
func TestDashboardsLinkToOneAnother(t *testing.T) {
	all := dashboards.All()
	known := map[string]bool{}
	for _, d := range all {
		if known[d.UID] || len(d.UID) > 40 {
			t.Errorf("the UID %q is not unique, or too long", d.UID)
		}
		known[d.UID] = true
	}
	for _, d := range all {
		if len(d.Links) != len(all)-1 {
			t.Errorf("%s has %d links, want one to each of the others", d.Title, len(d.Links))
		}
		for _, l := range d.Links {
			if !known[l.UID] {
				t.Errorf("%s links to %s, which does not exist", d.Title, l.UID)
			}
		}
	}
}

// Numbers are in the first row, which has no heading, and no two panels overlap.
func TestLayout(t *testing.T) {
	for _, d := range dashboards.All() {
		for _, p := range d.Rows[0].Panels {
			if p.Kind != grafana.Stat || d.Rows[0].Title != "" {
				t.Errorf("%s: the first row is not one of numbers", d.Title)
			}
		}
		panels, headings, height := d.Layout()
		taken := map[[2]int]string{}
		for _, h := range headings {
			for x := range 24 {
				taken[[2]int{x, h.Y}] = h.Title
			}
		}
		for _, p := range panels {
			for x := p.X; x < p.X+p.Width; x++ {
				for y := p.Y; y < p.Y+p.Height; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 || y >= height {
						t.Fatalf("%s: %s is outside, or overlaps %q", d.Title, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}
