// Package picture draws dashboards as SVG, with the results of their queries over recorded series. It stands in for Grafana where
// that is not available: in the documentation, and to look at a dashboard before it is released.
package picture

import (
	"context"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/grafana"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// Sizes in pixels. A unit of height is that of Grafana.
const (
	pageWidth  = 1440
	columns    = 24
	unitHeight = 30
	gap        = 8
	margin     = 12
	header     = 44
)

// Window is what of the series is drawn.
type Window struct {
	Store    *series.Store
	From, To time.Time
	// Scrape is the time between two scrapes.
	Scrape time.Duration
}

// Draw draws a dashboard.
func Draw(ctx context.Context, d grafana.Dashboard, w Window) (string, error) {
	panels, headings, height := d.Layout()
	var c canvas
	total := header + height*(unitHeight+gap) + margin
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`, pageWidth, total, html.EscapeString(d.Title))
	c.add("<style>%s</style>", style)
	c.rect(box{0, 0, pageWidth, float64(total)}, "#f4f5f5", "")
	c.text([2]float64{margin, 29}, "page", "start", d.Title)
	c.text([2]float64{pageWidth - margin, 28}, "legend", "end",
		fmt.Sprintf("Cluster: All   Job: All   NodePool: All   %s to %s", clock(w.From.UTC().Hour(), w.From.UTC().Minute()),
			clock(w.To.UTC().Hour(), w.To.UTC().Minute())))
	for _, h := range headings {
		title := "▾ " + h.Title
		if n := len(h.Hidden); n > 0 {
			title = fmt.Sprintf("▸ %s (%d panels)", h.Title, n)
		}
		c.text([2]float64{margin, top(h.Y) + 25}, "row", "start", title)
	}
	for _, p := range panels {
		if err := drawPanel(ctx, &c, p, w); err != nil {
			return "", fmt.Errorf("%s, panel %s: %w", d.Title, p.Title, err)
		}
	}
	c.add("</svg>")
	return c.out.String(), nil
}

// style are the fonts and colors, after Grafana's light theme.
const style = `text{font-family:Inter,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;fill:#24292e}` +
	`.page{font-size:18px;font-weight:600}.row{font-size:15px;font-weight:600}.title{font-size:13px;font-weight:600}` +
	`.axis,.legend,.cell{font-size:11px;fill:#5b6068}.cell{font-size:12px;fill:#24292e}.head{font-size:12px;font-weight:600;fill:#3274d9}` +
	`.empty{font-size:13px;fill:#767a80}.g{stroke:#e3e5e8;stroke-width:1;fill:none}.s{fill:none;stroke-width:1.5;stroke-linejoin:round}`

func top(units int) float64 { return header + float64(units)*(unitHeight+gap) }

// drawPanel draws the frame of a panel and what is in it.
func drawPanel(ctx context.Context, c *canvas, p grafana.Placed, w Window) error {
	const column = (pageWidth - 2*margin + gap) / float64(columns)
	b := box{
		margin + float64(p.X)*column, top(p.Y),
		float64(p.Width)*column - gap, float64(p.Height)*(unitHeight+gap) - gap,
	}
	c.rect(b, "#ffffff", `stroke="#e3e5e8" rx="3"`)
	c.text([2]float64{b.x + 10, b.y + 19}, "title", "start", fit(p.Title, 13, b.w-20))
	inside := b.inner(30, 10, 8, 10)
	switch p.Kind {
	case grafana.Stat:
		return drawStat(ctx, c, p.Panel, inside, w)
	case grafana.BarGauge:
		return drawBarGauge(ctx, c, p.Panel, inside, w)
	case grafana.Table:
		return drawTable(ctx, c, p.Panel, inside, w)
	default:
		return drawTimeSeries(ctx, c, p.Panel, inside, w)
	}
}

// drawEmpty writes what a panel shows without series.
func drawEmpty(c *canvas, p grafana.Panel, in box) {
	text := p.Empty
	if text == "" {
		text = "No data"
	}
	c.text([2]float64{in.x + in.w/2, in.y + in.h/2}, "empty", "middle", text)
}

// line is one series of a panel.
type line struct {
	name, color string
	points      []promql.FPoint
}

// last is the last value of a line.
func (l line) last() float64 {
	if len(l.points) == 0 {
		return math.NaN()
	}
	return l.points[len(l.points)-1].F
}

// step is the time between two points of a panel: a point every few pixels, and not more often than scrapes.
func (w Window) step(p grafana.Panel, pixels float64) time.Duration {
	const pixelsPerPoint = 4
	step := w.To.Sub(w.From) / time.Duration(max(pixels/pixelsPerPoint, 10))
	if p.Bars {
		step = max(step, grafana.BarInterval)
	}
	return max(step.Round(time.Second), w.Scrape)
}

// lines are the results of the queries of a panel over time, in the order of their names within each query.
func lines(ctx context.Context, p grafana.Panel, w Window, step time.Duration) ([]line, error) {
	var out []line
	for _, q := range p.Queries {
		expr := grafana.Interpolate(q.Expr, step, w.To.Sub(w.From), w.Scrape)
		from := w.To.Add(-w.To.Sub(w.From).Truncate(step))
		found, err := w.Store.Range(ctx, expr, from, w.To, step)
		if err != nil {
			return nil, err
		}
		first := len(out)
		for _, s := range found {
			out = append(out, line{name: name(q, s.Metric.Get, s.Metric.String()), points: finite(s.Floats)})
		}
		slices.SortStableFunc(out[first:], func(a, b line) int { return strings.Compare(a.name, b.name) })
	}
	out = slices.DeleteFunc(out, func(l line) bool { return len(l.points) == 0 })
	for i := range out {
		out[i].color = colorOf(p, out[:i], out[i].name)
	}
	return out, nil
}

// name is the name of a series: its legend, else its labels.
func name(q grafana.Query, label func(string) string, all string) string {
	if q.Legend == "" {
		return all
	}
	return strings.TrimSpace(q.Fill(label))
}

// finite leaves out what cannot be drawn.
func finite(points []promql.FPoint) []promql.FPoint {
	return slices.DeleteFunc(points, func(p promql.FPoint) bool { return math.IsNaN(p.F) || math.IsInf(p.F, 0) })
}
